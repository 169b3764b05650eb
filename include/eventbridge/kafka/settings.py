"""From a connection to the settings of a Kafka client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable

#: What an extra may hold beside what begins with `ssl.`, in the words of librdkafka.
_ALLOWED: Final = frozenset(
    {
        "bootstrap.servers",
        "broker.address.family",
        "client.id",
        "client.rack",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.timeout.ms",
    }
)
#: What connections made for Airflow's own Kafka operators often hold: it says how they consume, and we do not ask it.
_PASSED_OVER: Final = frozenset({"auto.offset.reset", "enable.auto.commit", "group.id"})


def client_settings(connection: Connection) -> dict[str, str]:
    """Return the settings of every client by a connection: where the brokers are, and who we are to them.

    `host` holds one broker or several, parted by commas; those without a port get the connection's, or 9092. `extra`
    holds settings in librdkafka's words, as connections of Airflow's Kafka provider do. A login means SASL, PLAIN and
    over TLS unless the extra says otherwise. Raises ConnectionUnusable, without secrets.
    """
    extra = {name: _text(value) for name, value in connection.extra.items() if name not in _PASSED_OVER}
    for name in extra:
        if name not in _ALLOWED and not name.startswith("ssl."):
            raise _unusable(connection, f"its extra holds {name!r}, which is not for a connection", "Remove it")
    servers = extra.pop("bootstrap.servers", "") or _servers(connection)
    if not servers:
        raise _unusable(connection, "it names no broker", "Give it a host, or bootstrap.servers in its extra")
    return {"bootstrap.servers": servers, **_login(connection, extra), **extra}


def _servers(connection: Connection) -> str:
    hosts = [host.strip() for host in connection.host.split(",") if host.strip()]
    return ",".join(host if ":" in host else f"{host}:{connection.port or 9092}" for host in hosts)


def _login(connection: Connection, extra: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if connection.login:
        found = {"sasl.username": connection.login, "sasl.password": connection.password}
        found["security.protocol"] = "SASL_SSL"
        if not extra.keys() & {"sasl.mechanism", "sasl.mechanisms"}:
            found["sasl.mechanism"] = "PLAIN"
    elif any(name.startswith("ssl.") for name in extra):
        found["security.protocol"] = "SSL"
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unusable(connection: Connection, what: str, remedy: str) -> ConnectionUnusable:
    return ConnectionUnusable(f"Connection {connection.id!r} cannot be used for Kafka: {what}. {remedy}.")
