"""Verifies the sender of a webhook: the signatures of GitHub, Stripe, Standard Webhooks and Svix.

Signatures are compared in constant time. If a signature has a timestamp, one that is too old or too new is refused, so
that a recorded call cannot be replayed later.
"""

from __future__ import annotations

import binascii
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

SignatureKind = Literal["github", "stripe", "standard"]

#: The maximum difference between the time of a signature and the local clock, in either direction.
TOLERANCE_SECONDS: Final = 300.0

#: The prefixes of header names in Standard Webhooks: its own, and that of Svix, from which it comes.
STANDARD_FAMILIES: Final = ("webhook", "svix")
_STANDARD_PARTS: Final = ("id", "timestamp", "signature")

_STANDARD_PREFIX: Final = "whsec_"


@dataclass(frozen=True)
class _Claim:
    """The result of reading a call's headers: why it is rejected, or its signatures and how to compute the right one.

    `before` are the signed bytes that precede the content, and `write` converts a digest to the form of `given`.
    """

    problem: str = ""
    given: Sequence[str] = ()
    before: bytes = b""
    write: Callable[[bytes], str] = bytes.hex


def hash_once(content: bytes) -> None:
    """Hash content as the check of one key does, so that a caller can make up for the keys that it does not have."""
    _digest(b"", b"", content)


def signature_problem(
    kind: SignatureKind, keys: Sequence[bytes], headers: Mapping[str, str], content: bytes, now: float
) -> str:
    """Return why a webhook is rejected, or "" if one of `keys` has signed it recently.

    `headers` have names in lower case; `now` is in seconds since 1970. Even a call with an error has its `content`
    hashed once for each key, so that the time does not show which kind of signature is expected.
    """
    claim = _CLAIMS[kind](headers, now)
    right = [_digest(key, claim.before, content) for key in keys]  # also for a call without a signature
    return claim.problem or _among(claim.given, map(claim.write, right))


def keys_of(kind: SignatureKind, secrets: str) -> list[bytes]:
    """Return the keys in a connection's space-separated secrets. Raises ValueError, whose message shows no secret.

    During a rotation, several keys are valid.
    """
    if kind != "standard":
        return [secret.encode() for secret in secrets.split()]
    keys = []
    for secret in secrets.split():
        if not secret.startswith(_STANDARD_PREFIX):
            raise ValueError(f"a secret of Standard Webhooks must begin with {_STANDARD_PREFIX}")
        key = binascii.a2b_base64(secret.removeprefix(_STANDARD_PREFIX), strict_mode=True)
        if not key:
            raise ValueError("a secret of Standard Webhooks must have base64 after its prefix")
        keys.append(key)
    return keys


def _github(headers: Mapping[str, str], now: float) -> _Claim:
    given = headers.get("x-hub-signature-256", "")
    if not given.startswith("sha256="):
        return _Claim("the header X-Hub-Signature-256 is missing, or is not sha256=<hex>")
    return _Claim(given=[given.removeprefix("sha256=")])


def _stripe(headers: Mapping[str, str], now: float) -> _Claim:
    parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
    at = next((value for name, _, value in parts if name == "t"), "")
    if problem := _time_problem("Stripe-Signature", at, now):
        return _Claim(problem)
    return _Claim(given=[value for name, _, value in parts if name == "v1"], before=at.encode() + b".")


def _standard(headers: Mapping[str, str], now: float) -> _Claim:
    # A signature covers the id of its own family only: with both, nobody could say which id is the sender's.
    first, second = ([f"{family}-{part}" for part in _STANDARD_PARTS] for family in STANDARD_FAMILIES)
    sent = [next((name for name in names if name in headers), "") for names in (first, second)]
    if all(sent):
        return _Claim(f"it has both {sent[0]} and {sent[1]}: a call has the headers of one family")
    names = second if sent[1] else first
    name, at, signatures = (headers.get(each, "") for each in names)
    if not name:
        return _Claim(f"the header {names[0]} is missing")
    if problem := _time_problem(names[1], at, now):
        return _Claim(problem)
    given = [each.removeprefix("v1,") for each in signatures.split() if each[:3] == "v1,"]
    return _Claim(given=given, before=f"{name}.{at}.".encode("utf-8", "surrogatepass"), write=_base64)


_CLAIMS: Final[dict[str, Callable[[Mapping[str, str], float], _Claim]]] = {
    "github": _github,
    "stripe": _stripe,
    "standard": _standard,
}


def _digest(key: bytes, before: bytes, content: bytes) -> bytes:
    found = hmac.new(key, before, "sha256")
    found.update(content)
    return found.digest()


def _base64(digest: bytes) -> str:
    return binascii.b2a_base64(digest, newline=False).decode()


def _among(signatures: Sequence[str], right: Iterable[str]) -> str:
    """Return the error if no given signature is right, else "". The time taken reveals nothing about the right ones."""
    if not signatures:
        return "it has no signature"
    pairs = [
        hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())
        for other in right
        for one in signatures
    ]
    return "" if any(pairs) else "no secret of the connection matches its signature"


def _time_problem(header: str, text: str, now: float) -> str:
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        return f"the header {header} is missing, or has no time in seconds"
    if abs(int(text) - now) > TOLERANCE_SECONDS:
        return f"its time differs from ours by more than {TOLERANCE_SECONDS:.0f} s: a repeated call, or a wrong clock"
    return ""
