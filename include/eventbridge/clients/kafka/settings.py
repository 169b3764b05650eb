"""Derives the settings of a Kafka client from a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventbridge.config.connection import Connection, require_type
from eventbridge.errors import ConnectionUnusable

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

#: The extras of a connection, named as in librdkafka, with the description for the page on Kafka.
EXTRAS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "the brokers, instead of host and port",
    "security.protocol": "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; without it TLS and SASL as the rest asks",
    "sasl.mechanism": "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER` or `GSSAPI`; with a login `PLAIN`",
    "sasl.mechanisms": "the same",
    "sasl.username": "instead of login",
    "sasl.password": "instead of password",
    "sasl.oauthbearer.token.endpoint.url": "where tokens are asked for (OAuth 2, client credentials); required",
    "sasl.oauthbearer.client.id": "instead of login",
    "sasl.oauthbearer.client.secret": "instead of password",
    "sasl.oauthbearer.scope": "what the tokens shall be good for",
    "sasl.oauthbearer.method": "`oidc`, and nothing else",
    "https.ca.location": "the file (PEM) of the CA certificates that vouch for the token endpoint",
    "sasl.kerberos.keytab": "the file with the keys of the principal",
    "sasl.kerberos.principal": "who we are",
    "sasl.kerberos.service.name": "the brokers' service",
    "ssl.*": "files, keys and names of TLS, such as `ssl.ca.location` and `ssl.certificate.location`",
    "broker.address.family": "`v4` or `v6`; without it both",
    "client.id": "how brokers call us in their logs and quotas",
    "client.rack": "where we are: a replica that is near is read from",
    "socket.timeout.ms": "how long a broker may take to respond",
}
#: Settings that connections made for Airflow's Kafka operators often hold; they say how to consume, and are ignored
#: here.
_PASSED_OVER: Final = frozenset({"auto.offset.reset", "enable.auto.commit", "group.id"})

_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"


def client_settings(connection: Connection) -> dict[str, str]:
    """Return the settings of a client by a connection: the brokers and our credentials.

    `host` holds one or several brokers, separated by commas; those without a port get the connection's, or 9092.
    `extra` holds settings of librdkafka, as for Airflow's Kafka provider (`EXTRAS`). A login means SASL PLAIN over TLS
    unless the extra says otherwise. Raises ConnectionUnusable, without secrets, also for a connection of another type
    than `kafka`.
    """
    require_type(connection, ("kafka",), "Kafka")
    extra = {name: _text(value) for name, value in connection.extra.items() if name not in _PASSED_OVER}
    for name in extra:
        if name not in EXTRAS and not name.startswith("ssl."):
            raise _unusable(connection, f"its extra holds {name!r}, which is not for a connection", "Remove it")
    servers = extra.pop("bootstrap.servers", "") or _servers(connection)
    if not servers:
        raise _unusable(connection, "it names no broker", "Give it a host, or bootstrap.servers in its extra")
    return {"bootstrap.servers": servers, **_login(connection, extra), **extra}


def _servers(connection: Connection) -> str:
    hosts = [host.strip() for host in connection.host.split(",") if host.strip()]
    return ",".join(host if ":" in host else f"{host}:{connection.port or 9092}" for host in hosts)


def _login(connection: Connection, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that follow from login, mechanism and TLS files, where the extra does not set them."""
    given = extra.get("sasl.mechanism") or extra.get("sasl.mechanisms")
    mechanism = given or ("PLAIN" if connection.login else "")
    if not mechanism:
        return {"security.protocol": "SSL"} if any(name.startswith("ssl.") for name in extra) else {}
    if mechanism not in MECHANISMS:
        raise _unusable(
            connection, f"{mechanism!r} is no mechanism of SASL that it knows", f"Write one of {', '.join(MECHANISMS)}"
        )
    found = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        if not extra.get(_TOKEN_URL):
            raise _unusable(connection, "its extra does not say where OAUTHBEARER gets tokens", f"Give it {_TOKEN_URL}")
        found["sasl.oauthbearer.method"] = "oidc"
        names = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret")
    else:
        names = ("sasl.username", "sasl.password")
    if connection.login:
        found |= zip(names, (connection.login, connection.password), strict=True)
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unusable(connection: Connection, what: str, remedy: str) -> ConnectionUnusable:
    return ConnectionUnusable(f"Connection {connection.id!r} cannot be used for Kafka: {what}. {remedy}.")
