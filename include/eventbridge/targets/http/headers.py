"""Builds the header lines of a delivery: the event's own, Standard Webhooks signatures, and the W3C trace context."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventbridge.errors import ConnectionUnusable
from eventbridge.event.trace_context import TRACEPARENT, is_traceparent
from eventbridge.targets.http.header_names import HEADER_NAME, is_reserved

# RFC 9110, 5.5; with a line break or NUL in a value, an event could add headers or a whole request
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class HeaderRefused(Exception):
    """A header that cannot be sent; the message shows its name, not its value."""


def header_line(name: str, value: str) -> str | bytes:
    """Return one header for libcurl (bytes if not ASCII). Raises HeaderRefused."""
    if not HEADER_NAME.fullmatch(name):
        raise HeaderRefused(f"{name[:100]!r} is not a header name")
    if _FORBIDDEN.search(value):
        raise HeaderRefused(f"header {name!r} contains a line break or control character")
    line = f"{name}: {value}" if value.strip() else f"{name};"  # "name:" would remove a header, "name;" sends it empty
    if line.isascii():
        return line
    try:
        return line.encode()
    except UnicodeEncodeError:
        raise HeaderRefused(f"header {name!r} contains half a surrogate pair") from None


def event_lines(headers: Mapping[str, str]) -> list[str | bytes]:
    """Return the lines for headers of an event; the target itself adds `traceparent`.

    Raises HeaderRefused for one that HTTP cannot carry or that the target sets itself.
    """
    lines: list[str | bytes] = []
    for name, value in headers.items():
        if is_reserved(name):
            raise HeaderRefused(f"header {name!r} is set by the target, not by an event")
        if name.lower() != "traceparent":
            lines.append(header_line(name, value))
    return lines


_HMAC, _ED25519, _PUBLIC = "whsec_", "whsk_", "whpk_"


@dataclass(frozen=True)
class SigningKey:
    """A key and its scheme: `v1` (HMAC-SHA256, any bytes) or `v1a` (ed25519, a seed of 32 bytes)."""

    version: Literal["v1", "v1a"]
    key: bytes = field(repr=False)


class Signer:
    """Signs deliveries as in Standard Webhooks: `id.timestamp.payload`, with the signature in base64.

    `v1` is HMAC-SHA256 (2 us for 1 KiB), `v1a` is ed25519 (about 40 us).
    Each key adds a signature, so that a receiver finds one made with its secret while secrets are rotated.
    """

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        self._keyed = [_KeyedHash(each.key) for each in keys if each.version == "v1"]
        self._private = [Ed25519PrivateKey.from_private_bytes(each.key) for each in keys if each.version == "v1a"]

    def sign(self, delivery_id: str, timestamp: str, payload: bytes) -> str:
        """Return the value of `webhook-signature`, e.g. `v1,K5oZ... v1a,dG9w...`; `timestamp` is in Unix seconds."""
        signed = f"{delivery_id}.{timestamp}.".encode() + payload
        signatures = [
            "v1," + binascii.b2a_base64(keyed.digest(signed), newline=False).decode("ascii") for keyed in self._keyed
        ]
        for private in self._private:
            signature = private.sign(signed)
            signatures.append("v1a," + binascii.b2a_base64(signature, newline=False).decode("ascii"))
        return " ".join(signatures)


class _KeyedHash:
    """HMAC-SHA256 with one key (RFC 2104), whose two initial hash states are copied for each message.

    That takes half as long as hashing the key again, and two thirds as long as copying an object of the module `hmac`.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        begun = hashlib.sha256()
        padded = (key if len(key) <= begun.block_size else hashlib.sha256(key).digest()).ljust(begun.block_size, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def digest(self, message: bytes) -> bytes:
        """Return the 32 bytes for a message."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


def parse_secrets(connection_id: str, text: str) -> tuple[SigningKey, ...]:
    """Return the keys in `whsec_<base64>` (HMAC) and `whsk_<base64>` (ed25519) secrets, separated by spaces.

    An empty string has no keys. Raises ConnectionUnusable, whose message names the connection and never the secret.
    """
    keys = []
    for number, secret in enumerate(text.split(), start=1):
        where = f"Connection {connection_id!r}: secret {number} of its extra `signing_secret`"
        if secret.startswith(_PUBLIC):
            raise ConnectionUnusable(
                f"{where} is a public key, which is for the receiver. Use the private key, which begins with whsk_."
            )
        prefix = next((each for each in (_HMAC, _ED25519) if secret.startswith(each)), None)
        if prefix is None:
            raise ConnectionUnusable(
                f"{where} does not begin with {_HMAC} or {_ED25519}. Write {_HMAC}<base64>; "
                "in a connection URI, escape + as %2B, / as %2F and = as %3D."
            )
        try:
            key = binascii.a2b_base64(secret.removeprefix(prefix), strict_mode=True)
        except ValueError:
            key = b""
        if not key:
            raise ConnectionUnusable(f"{where} has no valid base64 after {prefix}. Copy the whole secret.")
        keys.append(SigningKey("v1", key) if prefix == _HMAC else SigningKey("v1a", _seed(where, key)))
    return tuple(keys)


def _seed(where: str, key: bytes) -> bytes:
    """Return the 32-byte seed of an ed25519 key, to which some tools append the 32 bytes of the public key."""
    seed, public = key[:32], key[32:]
    if len(key) not in (32, 64):
        raise ConnectionUnusable(f"{where} has {len(key)} bytes; an ed25519 key has 32 or 64. Copy the whole secret.")
    if public and Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() != public:
        raise ConnectionUnusable(f"{where} has a public half that does not match its private half. Copy it again.")
    return seed


def traceparent(delivery_id: str, headers: Mapping[str, str]) -> str:
    """Return the W3C `traceparent` of a delivery: the event's or, if there is none, one derived from the delivery's id.

    One that is derived from the id is the same at every attempt, so that attempts share one trace. It is marked as
    sampled, because a receiver with parent-based sampling would otherwise not record it.
    """
    brought = headers.get(TRACEPARENT)
    if brought is not None and is_traceparent(brought):
        return brought
    digits = delivery_id.replace("-", "")
    return f"00-{digits}-{digits[16:]}-01"
