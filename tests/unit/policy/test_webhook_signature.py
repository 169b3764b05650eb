"""Webhook signatures are verified as in their providers' examples, and invalid ones are rejected."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from eventbridge.policy.webhook_signature import keys_of, signature_problem

NOW = 1_700_000_000.0
BODY = b'{"id": "evt_1"}'


def github(secret: str = "key", body: bytes = BODY) -> dict[str, str]:
    """Return the headers that GitHub would send."""
    return {"x-hub-signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def stripe(secret: str = "whsec_key", at: int = int(NOW), body: bytes = BODY) -> dict[str, str]:
    """Return the headers that Stripe would send."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={at},v1={'0' * 64},v1={digest},v0=1"}


def standard(key: bytes = b"key", at: int = int(NOW), body: bytes = BODY) -> dict[str, str]:
    """Return the headers that Standard Webhooks requires."""
    digest = hmac.new(key, f"msg_1.{at}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1a,AAAA v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": signature}


def svix(at: int = int(NOW)) -> dict[str, str]:
    """Return the headers that Svix sends: those of Standard Webhooks under its own names."""
    return {name.replace("webhook-", "svix-"): value for name, value in standard(at=at).items()}


SECRET = f"whsec_{base64.b64encode(b'key').decode()}"


def test_the_example_of_githubs_documentation() -> None:
    """GitHub's documented secret, payload and signature are accepted."""
    headers = {"x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}

    assert signature_problem("github", [b"It's a Secret to Everybody"], headers, b"Hello, World!", NOW) == ""


@pytest.mark.parametrize("family", ["webhook", "svix"])
def test_the_example_of_standard_webhooks(family: str) -> None:
    """The secret, id, time, payload and signature of the Standard Webhooks example are accepted, also as Svix's."""
    headers = {
        f"{family}-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        f"{family}-timestamp": "1614265330",
        f"{family}-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    keys = keys_of("standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    assert signature_problem("standard", keys, headers, b'{"test": 2432232314}', 1614265330) == ""


@pytest.mark.parametrize(
    ("kind", "secrets", "headers"),
    [
        ("github", "old key", github()),
        ("stripe", "whsec_old whsec_key", stripe()),
        ("standard", SECRET, standard()),
        ("standard", SECRET, svix()),
    ],
)
def test_a_signature_by_any_of_the_secrets_is_accepted(kind: str, secrets: str, headers: dict[str, str]) -> None:
    """One valid signature by any of several secrets is enough; a signature of another body is rejected."""
    keys = keys_of(kind, secrets)  # type: ignore[arg-type]

    assert signature_problem(kind, keys, headers, BODY, NOW) == ""  # type: ignore[arg-type]
    assert "no secret" in signature_problem(kind, keys, headers, BODY + b" ", NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "headers", "said"),
    [
        ("github", {}, "X-Hub-Signature-256 is missing"),
        ("github", {"x-hub-signature-256": "sha1=00"}, "is not sha256="),
        ("github", {"x-hub-signature-256": "sha256=\u00e9"}, "no secret"),
        ("stripe", {}, "Stripe-Signature is missing"),
        ("stripe", stripe(at=int(NOW) - 301), "a repeated call"),
        ("stripe", stripe(at=int(NOW) + 301), "a wrong clock"),
        ("stripe", {"stripe-signature": f"t={int(NOW)}"}, "no signature"),
        ("standard", {}, "webhook-id is missing"),
        ("standard", standard(at=int(NOW) - 301), "a repeated call"),
        ("standard", standard() | {"webhook-timestamp": "soon"}, "no time in seconds"),
        ("standard", standard() | {"webhook-timestamp": "\u0661"}, "no time in seconds"),
        ("standard", standard() | {"webhook-id": "msg_2"}, "no secret"),
        ("standard", standard() | {"webhook-signature": "v1a,AAAA"}, "no signature"),
        ("standard", svix(at=int(NOW) - 301), "a repeated call"),
        ("standard", {"svix-id": "msg_1"}, "svix-timestamp is missing"),
        ("standard", svix() | {"svix-id": "msg_2"}, "no secret"),
        ("standard", standard() | {"svix-id": "msg_1"}, "both webhook-id and svix-id"),
        ("standard", svix() | {"webhook-signature": "v1,AAAA"}, "both webhook-signature and svix-id"),
    ],
)
def test_a_rejected_signature_has_a_reason(kind: str, headers: dict[str, str], said: str) -> None:
    """A missing or invalid header, a time too far away and a foreign signature are rejected with a reason."""
    keys = keys_of(kind, {"standard": SECRET}.get(kind, "key"))  # type: ignore[arg-type]

    assert said in signature_problem(kind, keys, headers, BODY, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", ["key", "whsec_", "whsec_a"])
def test_a_secret_of_standard_webhooks_is_base64(secret: str) -> None:
    """A secret of Standard Webhooks is base64; an invalid one is reported without being shown."""
    with pytest.raises(ValueError, match=r"secret|base64|padding|data") as caught:
        keys_of("standard", secret)

    assert secret not in str(caught.value).split() or secret == "whsec_"
