"""From a connection to the settings of a RocketMQ client, and what of a connection cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import certificates
import pytest

from eventbridge.clients.rocketmq.remoting.settings import Tls
from eventbridge.clients.rocketmq.settings import client_settings
from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable


def connection(**fields: Any) -> Connection:
    return Connection("shop", "rocketmq", **fields)


@pytest.mark.parametrize(
    ("fields", "servers"),
    [
        ({"host": "a"}, ("a:9876",)),
        ({"host": "a", "port": 1}, ("a:1",)),
        ({"host": "a;b:2, c", "port": 1}, ("a:1", "b:2", "c:1")),
        ({"host": "a", "extra": {"name_servers": "b;c:2"}}, ("b:9876", "c:2")),
    ],
)
def test_name_servers_are_parted_by_commas_or_semicolons(fields: dict[str, Any], servers: tuple[str, ...]) -> None:
    """One without a port gets the connection's, or 9876."""
    assert client_settings(connection(**fields)).name_servers == servers


def test_credentials_and_protocol(tmp_path: Path) -> None:
    """Login and password are the keys; a file of certificates means TLS; the secret is not shown."""
    file = certificates.self_signed().write(tmp_path / "own.pem")
    extra = {"ca_certificate": str(file), "check_name": "false", "read_group": "readers"}
    found = client_settings(connection(host="a", login="key", password="secret", extra=extra))

    assert (found.access_key, found.secret_key, found.read_group) == ("key", "secret", "readers")
    assert found.tls == Tls(str(file), check_name=False)
    assert "secret'" not in repr(found)
    assert client_settings(connection(host="a")).tls is None
    assert client_settings(connection(host="a", extra={"tls": True})).tls == Tls()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "it names no name server. Give it a host"),
        (
            {"host": "a", "extra": {"acks": "all"}},
            "its extra has 'acks', which cannot be set in a connection. Remove it",
        ),
        ({"host": "a", "login": "key"}, "it has only one of access key and secret key"),
        ({"host": "a", "password": "secret"}, "it has only one of access key and secret key"),
        ({"host": "a", "extra": {"ca_certificate": "/nowhere.pem"}}, "its certificates cannot be used: No such file"),
    ],
)
def test_an_unusable_value_is_reported(fields: dict[str, Any], said: str) -> None:
    """With the connection's name, what to do, and no secret."""
    with pytest.raises(ConnectionUnusable, match=said) as caught:
        client_settings(connection(**fields))

    assert "'shop'" in str(caught.value)
    assert "secret'" not in str(caught.value)
