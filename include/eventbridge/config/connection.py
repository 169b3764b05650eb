"""Defines connections, which are named credentials and signing secrets, and reads them from EVENTBRIDGE_CONN_*
variables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from eventbridge.errors import ConnectionUnusable
from eventbridge.similar_names import similar

PREFIX = "EVENTBRIDGE_CONN_"

#: The types that HTTP clients accept. Airflow gives a connection whose URI begins with https:// the type `https`.
HTTP_TYPES: Final = ("http", "https", "eventbridge_target")

_JSON_FIELDS = {"conn_type", "host", "port", "login", "password", "schema", "extra", "description"}


@dataclass(frozen=True)
class Connection:
    """A connection with Airflow's fields. Neither its repr nor messages about it show the login, password or extra."""

    id: str
    type: str
    host: str = ""
    port: int | None = None
    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    schema: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_text(cls, connection_id: str, text: str) -> Connection:
        """Read Airflow's URI form (`http://login:password@host:443/schema?key=value`) or its JSON form.

        Raises ConnectionUnusable if it cannot be read. The message does not show `text`, which holds secrets.
        """
        try:
            parts = _from_json(text) if text.lstrip().startswith("{") else _from_uri(text)
        except ValueError as error:
            raise ConnectionUnusable(
                f"Connection {connection_id!r} cannot be read: {error}. "
                "Write type://login:password@host:port/schema?key=value with %-escapes, or Airflow's JSON form."
            ) from None
        return cls(id=connection_id, **parts)


def require_type(connection: Connection, types: Sequence[str], use: str) -> None:
    """Raise ConnectionUnusable for a connection whose type is not in `types`.

    `use` says who uses it, as in "target 'crm' of rule 'orders'". A connection of another type holds secrets for
    something else, and a rule file must not be able to send them to the wrong place.
    """
    if connection.type not in types:
        listed = types[0] if len(types) == 1 else f"{', '.join(types[:-1])} or {types[-1]}"
        raise ConnectionUnusable(
            f"Connection {connection.id!r} is of type {connection.type!r}, but {use} requires a connection of type "
            f"{listed}. Name another connection, or define one of that type."
        )


@runtime_checkable
class RemembersConnections(Protocol):
    """Reads connections by id and caches them for a while."""

    def __call__(self, connection_id: str) -> Connection:
        """Return the connection, perhaps from the cache. Raises ConnectionUnusable."""
        ...

    def read_again(self, connection_id: str) -> Connection:
        """Return the connection, bypassing the cache. Raises ConnectionUnusable."""
        ...


def connections_from_environment(environ: Mapping[str, str]) -> Callable[[str], Connection]:
    """Return a function that reads a connection from the variable EVENTBRIDGE_CONN_<ID>, with its id in upper case.

    The function raises ConnectionUnusable for an id that is not defined or whose value cannot be read.
    """

    def connection(connection_id: str) -> Connection:
        name = PREFIX + connection_id.upper()
        if not environ.get(name):
            near = similar(name, [key for key in environ if key.startswith(PREFIX)])
            hint = f" Did you mean {near[0].removeprefix(PREFIX).lower()!r}?" if near else ""
            raise ConnectionUnusable(
                f"Connection {connection_id!r} is not defined: set {name} to its URI. "
                f"Only tasks in Airflow read the connections of Airflow.{hint}"
            )
        return Connection.from_text(connection_id, environ[name])

    return connection


def _from_uri(uri: str) -> dict[str, Any]:
    # as Airflow reads it (airflow.models.connection, 3.3): the part before a second "://" is the host's protocol
    scheme, separator, rest = uri.partition("://")
    if not separator or not scheme:
        raise ValueError("it is not a URI")
    host_protocol = ""
    if "://" in rest:
        host_protocol, _, rest = rest.partition("://")
        if not host_protocol.isalnum() or "://" in rest:
            raise ValueError("'://' may occur at most twice, the second time after the host's protocol")
    try:
        parts = urlsplit(f"//{rest}")
        host, port = _host(parts), parts.port
    except ValueError:  # its message may quote an unescaped password
        raise ValueError("its host or port is malformed (perhaps a / or @ in the password is not escaped)") from None
    return {
        "type": scheme.lower().replace("-", "_"),
        "host": f"{host_protocol}://{host}" if host_protocol else host,
        "port": port,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "schema": unquote(parts.path[1:]),
        "extra": _extra_of_query(parts.query),
    }


def _host(parts: SplitResult) -> str:
    # parts.hostname would convert an escaped path, which is also a host here, to lower case
    host = parts.netloc.rpartition("@")[2]
    if host.startswith("["):
        return host[1 : host.index("]")]
    name = unquote(host.partition(":")[0])
    return name if "/" in name else name.lower()


def _extra_of_query(query: str) -> dict[str, Any]:
    pairs = dict(parse_qsl(query, keep_blank_values=True))
    return _extra(pairs["__extra__"]) if "__extra__" in pairs else dict(pairs)


def _extra(text: str) -> dict[str, Any]:
    try:
        extra = json.loads(text) if text else {}
    except ValueError:
        raise ValueError("its extra is not JSON") from None
    if not isinstance(extra, dict):
        raise ValueError("its extra is not a JSON object")
    return extra


def _from_json(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it begins like JSON but is not JSON ({getattr(error, 'msg', 'bad text')})") from None
    unknown = sorted(set(fields) - _JSON_FIELDS)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r} of a connection")
    if not isinstance(fields.get("conn_type"), str):
        raise ValueError("conn_type is missing")
    extra = fields.get("extra") or {}
    if not isinstance(extra, str | dict):
        raise ValueError("its extra is not a JSON object")
    port = str(fields.get("port") or "")
    if port and not port.isdecimal():
        raise ValueError("its port is not a number")
    texts = {name: str(fields.get(name) or "") for name in ("host", "login", "password", "schema")}
    return {
        "type": fields["conn_type"].lower().replace("-", "_"),
        "port": int(port) if port else None,
        "extra": _extra(extra) if isinstance(extra, str) else dict(extra),
        **texts,
    }
