"""Sends requests through an egress proxy: reads it from its connection, and resolves a target before CONNECT.

A proxy would resolve a host name itself, out of reach of the SSRF protection. So this process resolves the name, checks
the addresses as for a direct connection, and names one of them in CONNECT; TLS still verifies the name.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eventbridge.config.connection import HTTP_TYPES, Connection, require_type
from eventbridge.errors import ConnectionUnusable
from eventbridge.targets.http.redaction import SecretForm, forms_of
from eventbridge.targets.ssrf_guard import SETTING

if TYPE_CHECKING:
    from eventbridge.targets.http.endpoint import Endpoint

_PORTS = {"http": 80, "https": 443}


class AddressRefused(Exception):
    """The target's host has internal addresses only; the message names the setting that allows them."""


class HostUnknown(Exception):
    """The target's host name cannot be resolved here."""


@dataclass(frozen=True)
class Proxy:
    """An egress proxy: the id of its connection, its URL, and its login and password, which its repr does not show."""

    connection: str
    url: str
    credentials: str = field(default="", repr=False)
    secrets: tuple[SecretForm, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """Return how messages name the proxy."""
        return f"the proxy {self.url} (connection {self.connection!r})"


def proxy_of(connection: Connection, use: str) -> Proxy:
    """Return the proxy of a connection; `use` says which target names it.

    Raises ConnectionUnusable. The extra `egress_proxy` is the consent of the connection's owner: a proxy may have an
    internal address, and a rule file must not turn any connection into a way to one.
    """
    require_type(connection, HTTP_TYPES, f"the proxy of {use}")
    if str(connection.extra.get("egress_proxy", "")).lower() != "true":
        raise ConnectionUnusable(
            f"Connection {connection.id!r} is not for a proxy, and {use} names it as one. "
            "Name another, or set its extra `egress_proxy` to true."
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
            f"Connection {connection.id!r} needs the host and port of a proxy, such as http://proxy.example and 3128."
        )
    if ":" in connection.login:
        raise ConnectionUnusable(f"Connection {connection.id!r} has a login with a colon, which cannot be sent.")
    credentials = f"{connection.login}:{connection.password}" if connection.login else ""
    shown = f"[{host}]" if ":" in host else host
    secrets = forms_of([connection.password]) if connection.password else ()
    return Proxy(connection.id, f"{scheme}://{shown}:{port}", credentials, secrets)


def routed(endpoint: Endpoint) -> Endpoint:
    """Return an endpoint with the address that its proxy connects to, the endpoint itself without a proxy; may block.

    Raises HostUnknown, and AddressRefused if each address of the host is refused.
    """
    if endpoint.proxy is None:
        return endpoint
    parts = urlsplit(endpoint.url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostUnknown(f"{host} cannot be resolved here, which a target with a proxy needs: {error}") from None
    refusals = []
    # IPv4 first, because many proxies have no route to IPv6 addresses; one that has takes either
    for address in sorted(dict.fromkeys(str(each[4][0]) for each in found), key=lambda each: ":" in each):
        refusal = endpoint.guard.refusal(address)
        if refusal is None:
            shown = f"[{address}]" if ":" in address else address
            return replace(endpoint, connect_to=f"::{shown}:{port}")
        refusals.append(refusal)
    raise AddressRefused(f"{'; '.join(refusals)}: nothing is delivered there unless {SETTING} names its block")
