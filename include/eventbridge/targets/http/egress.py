"""Sends requests through an egress proxy: reads it from its connection, and resolves a target before CONNECT.

A proxy would resolve a host name itself, out of reach of the SSRF protection. So this process resolves the name, checks
the addresses as for a direct connection, and names one of them in CONNECT; TLS still verifies the name.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eventbridge.config.connection import HTTP_TYPES, Connection, require_type
from eventbridge.config.redaction import SecretForm, forms_of
from eventbridge.errors import ConnectionUnusable
from eventbridge.targets.http.credentials import EXTRAS
from eventbridge.targets.http.tls import Tls, tls_of
from eventbridge.targets.ssrf_guard import SsrfGuard, describe_refusals

if TYPE_CHECKING:
    from eventbridge.targets.http.endpoint import Endpoint

_PORTS = {"http": 80, "https": 443}
#: The extras of a connection that a proxy takes, and those that only a proxy with TLS takes.
_EXTRAS = frozenset({"egress_proxy"})
_TLS_EXTRAS = frozenset({"ca_certificate", "client_certificate", "private_key", "private_key_password"})
#: The maximum age of a connection and of a resolved address, in seconds. It is limited because a streaming task keeps
#: its connections, and DNS may change.
LIFETIME_SECONDS = 60


class AddressRefused(Exception):
    """The target's host has internal addresses only; the message names the setting that allows them."""


class HostUnknown(Exception):
    """The target's host name cannot be resolved here."""


@dataclass(frozen=True)
class Proxy:
    """An egress proxy: the id of its connection, its URL, its login and password, which its repr does not show, and the
    TLS settings of an https URL."""

    connection: str
    url: str
    credentials: str = field(default="", repr=False)
    secrets: tuple[SecretForm, ...] = field(default=(), repr=False)
    tls: Tls = field(default_factory=Tls)

    @property
    def name(self) -> str:
        """Return how messages name the proxy."""
        return f"the proxy {self.url} (connection {self.connection!r})"


def proxy_of(connection: Connection, use: str) -> Proxy:
    """Return the proxy of a connection; `use` says which target names it.

    Raises ConnectionUnusable. The `egress_proxy` extra is the consent of the connection's owner: a proxy may have an
    internal address, and a rule file must not turn any connection into a way to one.
    """
    require_type(connection, HTTP_TYPES, f"the proxy of {use}")
    if str(connection.extra.get("egress_proxy", "")).lower() != "true":
        raise ConnectionUnusable(
            f"Connection {connection.id!r} is not marked as a proxy, but {use} names it as one. "
            "Name another connection, or set the extra `egress_proxy` of this one to true."
        )
    scheme, separator, rest = connection.host.rpartition("://")
    scheme = scheme.lower() if separator else "https" if connection.type == "https" else "http"
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, connection.port or parts.port
    except ValueError:  # its message may quote a secret
        host, port = None, None
    if scheme not in _PORTS or not host or not port:
        raise ConnectionUnusable(
            f"Connection {connection.id!r} does not name the host and port of a proxy. "
            "Write them, such as http://proxy.example and 3128."
        )
    if ":" in connection.login:
        what = "has a login with a colon, which cannot be sent (RFC 7617). Use another login."
        raise ConnectionUnusable(f"Connection {connection.id!r} {what}")
    _refuse_extras(connection, scheme)
    credentials = f"{connection.login}:{connection.password}" if connection.login else ""
    shown = f"[{host}]" if ":" in host else host
    secrets = forms_of([connection.password]) if connection.password else ()
    tls = tls_of(connection) if scheme == "https" else Tls()
    return Proxy(connection.id, f"{scheme}://{shown}:{port}", credentials, secrets, tls)


def _refuse_extras(connection: Connection, scheme: str) -> None:
    """Reject an extra that has a meaning for targets and none for a proxy, such as a token."""
    taken = _EXTRAS | _TLS_EXTRAS if scheme == "https" else _EXTRAS
    for name in sorted(EXTRAS - taken):
        if connection.extra.get(name):
            what = "a proxy without TLS" if name in _TLS_EXTRAS else "a proxy"
            raise ConnectionUnusable(
                f"Connection {connection.id!r} has an extra `{name}`, which {what} does not use. Remove it."
            )


def routed(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint with the address that its proxy connects to, the endpoint itself without a proxy; may block.

    An address is resolved and checked once in LIFETIME_SECONDS.
    Raises HostUnknown, and AddressRefused if each address of the host is refused.
    """
    if endpoint.proxy is None:
        return endpoint
    key = _key(endpoint)
    host, port, _ = key
    address, good_until = _addresses.get(key, ("", 0.0))
    if time.monotonic() >= good_until:
        address = _allowed_address(host, port, endpoint.guard)
        if len(_addresses) >= _MAX_ADDRESSES:
            _addresses.clear()
        _addresses[key] = address, time.monotonic() + LIFETIME_SECONDS
    shown = f"[{address}]" if ":" in address else address
    connect_to = f"::{shown}:{port}"
    return endpoint if endpoint.connect_to == connect_to else replace(endpoint, connect_to=connect_to)


def is_routed(endpoint: Endpoint) -> bool:
    """Return whether `routed` returns without asking a resolver."""
    return endpoint.proxy is None or time.monotonic() < _addresses.get(_key(endpoint), ("", 0.0))[1]


def _key(endpoint: Endpoint) -> tuple[str, int, SsrfGuard]:
    parts = urlsplit(endpoint.url)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme], endpoint.guard


def _allowed_address(host: str, port: int, guard: SsrfGuard) -> str:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostUnknown(
            f"this machine cannot resolve {host}, whose addresses it must check even if a proxy is used: {error}"
        ) from None
    refusals = []
    # IPv4 first, because many proxies have no route to IPv6 addresses; one that has takes either
    for address in sorted(dict.fromkeys(str(each[4][0]) for each in found), key=lambda each: ":" in each):
        refusal = guard.refusal(address)
        if refusal is None:
            return address
        refusals.append(refusal)
    raise AddressRefused(describe_refusals(refusals))


_MAX_ADDRESSES = 10_000
#: Allowed addresses by host, port and guard, each with the time until which it is used.
_addresses: dict[tuple[str, int, SsrfGuard], tuple[str, float]] = {}
