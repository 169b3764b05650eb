"""Reads the settings of a RocketMQ client from a connection, and converts its errors to BusError with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from eventbridge.clients.rocketmq.remoting.errors import HostUnknown, Refused, RemotingError, TlsFailed, Unreachable
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings, Tls
from eventbridge.config.connection import Connection, require_type
from eventbridge.errors import BusError, ConnectionUnusable

_PORT: Final = 9876
_ALLOWED: Final = ("ca_certificate", "certificate", "key", "check_name", "name_servers", "read_group", "tls")


def client_settings(connection: Connection) -> ClientSettings:
    """Return the settings of a client from a connection: the name servers and the credentials.

    `host` holds one or several name servers, separated by commas or semicolons; those without a port get the
    connection's, or 9876. The login and the password are the access key and the secret key. Raises ConnectionUnusable,
    whose message has no secrets, for an unusable connection or one whose type is not `rocketmq`.
    """
    require_type(connection, ("rocketmq",), "RocketMQ")
    extra = connection.extra
    for name in extra:
        if name not in _ALLOWED:
            raise _unusable(connection, f"its extra has {name!r}, which cannot be set in a connection", "Remove it")
    servers = _servers(str(extra.get("name_servers") or connection.host), connection.port or _PORT)
    if not servers:
        raise _unusable(connection, "it names no name server", "Give it a host, or name_servers in its extra")
    if bool(connection.login) != bool(connection.password):
        raise _unusable(connection, "it has only one of access key and secret key", "Give it login and password")
    settings = ClientSettings(servers, connection.login, connection.password, _tls(connection, extra))
    return replace(settings, read_group=str(extra.get("read_group") or settings.read_group))


def _servers(text: str, port: int) -> tuple[str, ...]:
    named = [each.strip() for each in text.replace(";", ",").split(",") if each.strip()]
    return tuple(each if ":" in each else f"{each}:{port}" for each in named)


def _tls(connection: Connection, extra: Mapping[str, Any]) -> Tls | None:
    files = {name: str(extra.get(name) or "") for name in ("ca_certificate", "certificate", "key")}
    if not _is_true(extra.get("tls", any(files.values()))):
        return None
    tls = Tls(files["ca_certificate"], files["certificate"], files["key"], _is_true(extra.get("check_name", True)))
    try:
        tls.context()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise _unusable(
            connection, f"its certificates cannot be used: {why}", "Correct the files in its extra"
        ) from None
    return tls


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "1", "yes")


def _unusable(connection: Connection, problem: str, remedy: str) -> ConnectionUnusable:
    return ConnectionUnusable(f"Connection {connection.id!r} cannot be used for RocketMQ: {problem}. {remedy}.")


_START: Final = "Start the name servers and brokers, or correct the connection's host"
_REMEDIES: Final = {
    13: "Send smaller messages, or raise the broker's maxMessageSize",
    16: "Correct login and password, or allow its access key to read and write the topic and its group",
    17: "Create the topic, start its brokers, or correct topics in the rule file",
    26: "Create the consumer group: mqadmin updateSubGroup -n NAME_SERVER -c CLUSTER -g GROUP",
}


@contextmanager
def as_bus_errors(servers: str, doing: str) -> Iterator[None]:
    """Convert RemotingError within the block to BusError with a remedy; `doing` is what failed."""
    try:
        yield
    except RemotingError as error:
        raise bus_error(servers, doing, error) from None


def bus_error(servers: str, doing: str, error: RemotingError) -> BusError:
    """Return the BusError for a client's error; `doing` is what failed, such as `cannot read offsets`."""
    reason = " ".join(str(error).split())[:300].rstrip(". ")
    remedy = _remedy(error)
    return BusError(f"RocketMQ at {servers}: {doing}: {reason}." + (f" {remedy}." if remedy else ""))


def _remedy(error: RemotingError) -> str:
    match error:
        case Refused():
            return _REMEDIES.get(error.code, "")
        case TlsFailed():
            return "Correct tls and ca_certificate in the connection's extra"
        case HostUnknown():
            return "Correct the connection's host"
        case Unreachable():
            return _START
        case _:
            return ""
