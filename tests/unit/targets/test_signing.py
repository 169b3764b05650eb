"""Signatures and trace context of deliveries."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventbridge.errors import ConnectionUnusable
from eventbridge.targets.http.headers import Signer, parse_secrets, traceparent

DELIVERY_ID = "01234567-89ab-8def-8123-456789abcdef"


def test_the_published_example() -> None:
    """The example that the reference libraries of Standard Webhooks test themselves with."""
    keys = parse_secrets("crm", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    signature = Signer(keys).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_several_secrets_give_several_signatures() -> None:
    """While a secret is rotated, each gives its signature, in order; signing twice gives the same."""
    old, new = b"o" * 32, b"n" * 32
    text = " ".join(f"whsec_{base64.b64encode(key).decode()}" for key in (new, old))
    signer = Signer(parse_secrets("crm", f"  {text}\n"))
    message = DELIVERY_ID.encode() + b".1700000000." + b"\xff payload"

    expected = " ".join(
        "v1," + base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode() for key in (new, old)
    )
    assert signer.sign(DELIVERY_ID, "1700000000", b"\xff payload") == expected
    assert signer.sign(DELIVERY_ID, "1700000000", b"\xff payload") == expected


@pytest.mark.parametrize("form", ["seed", "both halves"])
def test_an_ed25519_key_signs_v1a(form: str) -> None:
    """A `whsk_` secret, of 32 bytes or with its public key behind them, signs by ed25519 beside HMAC secrets."""
    private = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
    public = private.public_key()
    key = b"s" * 32 + (public.public_bytes_raw() if form == "both halves" else b"")
    text = f"whsk_{base64.b64encode(key).decode()} whsec_{base64.b64encode(b'k' * 32).decode()}"

    signed = Signer(parse_secrets("crm", text)).sign(DELIVERY_ID, "1700000000", b"payload")

    by_version = dict(each.split(",", 1) for each in signed.split(" "))
    assert sorted(by_version) == ["v1", "v1a"]
    public.verify(base64.b64decode(by_version["v1a"]), DELIVERY_ID.encode() + b".1700000000.payload")


def test_the_published_vector_of_ed25519() -> None:
    """RFC 8032, 7.1, test 3: the key and what it signs are those of the standard."""
    seed = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
    [key] = parse_secrets("crm", f"whsk_{base64.b64encode(seed).decode()}")

    expected = (
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    )
    assert Ed25519PrivateKey.from_private_bytes(key.key).sign(bytes.fromhex("af82")).hex() == expected


def test_a_key_is_not_shown() -> None:
    """Printed by mistake, it is its version only."""
    keys = parse_secrets("crm", f"whsk_{base64.b64encode(b's' * 32).decode()} whsec_aHVzaGh1c2g=")

    assert repr(keys) == "(SigningKey(version='v1a'), SigningKey(version='v1'))"


def test_no_secret_no_keys() -> None:
    """An empty text holds no secret."""
    assert parse_secrets("crm", " ") == ()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("c2VjcmV0c2VjcmV0", "does not begin with whsec_"),
        ("whsec_c2VjcmV0 c2VjcmV0", "secret 2"),
        ("whsec_", "no valid base64"),
        ("whsec_c2Vj*cmV0", "no valid base64"),
        ("whsec_c2VjcmV", "no valid base64"),
        ("whsk_c2VjcmV0", "has 6 bytes"),
        (f"whsk_{base64.b64encode(b'k' * 64).decode()}", "public half"),
        (f"whpk_{base64.b64encode(b'k' * 32).decode()}", "is a public key"),
    ],
)
def test_a_secret_that_cannot_be_read(text: str, part: str) -> None:
    """The error names the connection and the remedy, and not the secret."""
    with pytest.raises(ConnectionUnusable) as caught:
        parse_secrets("crm", text)

    assert "'crm'" in str(caught.value)
    assert part in str(caught.value)
    assert "c2Vj" not in str(caught.value)
    assert "a2tr" not in str(caught.value)


def test_the_trace_is_made_of_the_delivery_id() -> None:
    """The same delivery has the same trace at every attempt."""
    assert traceparent(DELIVERY_ID, {}) == "00-0123456789ab8def8123456789abcdef-8123456789abcdef-01"


def test_an_events_own_trace_is_continued() -> None:
    """A trace that the event brought continues."""
    brought = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    assert traceparent(DELIVERY_ID, {"traceparent": brought}) == brought


@pytest.mark.parametrize(
    "brought",
    [
        "",
        "4bf92f3577b34da6a3ce929d0e0e4736",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nevil: 1",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n",
    ],
)
def test_a_trace_that_is_none_is_not_continued(brought: str) -> None:
    """Anything but a W3C traceparent is replaced by the delivery's own."""
    assert traceparent(DELIVERY_ID, {"traceparent": brought}) == traceparent(DELIVERY_ID, {})


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_a_key_of_any_length_signs_as_hmac_does(length: int) -> None:
    """RFC 2104: a shorter key than a block of the hash is filled up, a longer one is hashed first."""
    key = bytes(range(length))
    signed = Signer(parse_secrets("crm", f"whsec_{base64.b64encode(key).decode()}")).sign("id", "17", b"payload")

    assert signed == "v1," + base64.b64encode(hmac.new(key, b"id.17.payload", hashlib.sha256).digest()).decode()
