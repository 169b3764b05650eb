"""From a connection to the settings of a Kafka client, what of a connection cannot be used, and what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from eventbridge.clients.kafka.client import EXTRAS, MECHANISMS, client_settings
from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable

PAGE = (Path(__file__).parents[4] / "docs" / "howto" / "connect-kafka.md").read_text()
TOKENS = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://id.example/token"}
LOGIN = {"login": "orders", "password": "hush"}


def settings(**fields: Any) -> dict[str, str]:
    """Return the settings by a connection of these fields, but for where the brokers are."""
    found = client_settings(Connection("shop", "kafka", **({"host": "a"} | fields)))
    assert found.pop("bootstrap.servers") == "a:9092"
    return found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {}),
        ({"extra": {"ssl.ca.location": "/a.pem"}}, {"security.protocol": "SSL", "ssl.ca.location": "/a.pem"}),
        ({"extra": {"group.id": "x"}}, {}),
        (LOGIN, {"sasl.mechanism": "PLAIN", "sasl.username": "orders", "sasl.password": "hush"}),
        (
            {**LOGIN, "extra": {"sasl.mechanism": "SCRAM-SHA-512"}},
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "orders", "sasl.password": "hush"},
        ),
        (
            {**LOGIN, "extra": {"security.protocol": "SASL_PLAINTEXT"}},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "orders",
                "sasl.password": "hush",
            },
        ),
        (
            {**LOGIN, "extra": TOKENS},
            {
                **TOKENS,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "orders",
                "sasl.oauthbearer.client.secret": "hush",
            },
        ),
    ],
    ids=["nobody", "TLS", "a group", "a login", "SCRAM", "no TLS", "tokens"],
)
def test_a_login_is_what_its_mechanism_needs(fields: dict[str, Any], found: dict[str, str]) -> None:
    """Over TLS, unless the extra says otherwise; of a client of OAuth 2 it is id and secret."""
    secured = {"security.protocol": "SASL_SSL"} if "sasl.mechanism" in found else {}

    assert settings(**fields) == secured | found


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": ""}, "it names no broker. Set its host"),
        ({"extra": {"acks": "all"}}, "its extra has 'acks', which cannot be set in a connection. Remove it"),
        (
            {**LOGIN, "extra": {"sasl.mechanism": "SCRAM"}},
            f"'SCRAM' is not a supported SASL mechanism. Use one of {', '.join(MECHANISMS)}",
        ),
        ({**LOGIN, "extra": {"sasl.mechanism": "OAUTHBEARER"}}, r"Set sasl\.oauthbearer\.token\.endpoint\.url"),
    ],
)
def test_an_unusable_value_is_reported(fields: dict[str, Any], said: str) -> None:
    """With the connection's name, what to do, and no secret."""
    with pytest.raises(ConnectionUnusable, match=said) as caught:
        settings(**fields)

    assert "Connection 'shop'" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_page_has_what_an_extra_may_hold() -> None:
    """Each name with what it is, in the same order and words."""
    (section,) = re.findall(r"^### Extra\n(.*?)(?=^#)", PAGE, re.MULTILINE | re.DOTALL)

    assert re.findall(r"^\| `(.*?)` \| (.*?) \|$", section, re.MULTILINE) == list(EXTRAS.items())
