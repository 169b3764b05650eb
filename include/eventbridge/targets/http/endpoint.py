"""Defines the endpoint of requests, and creates the libcurl handles that send them under the installation's rules."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pycurl

from eventbridge.config.redaction import SecretForm
from eventbridge.targets.http.egress import LIFETIME_SECONDS, Proxy
from eventbridge.targets.http.tls import Tls
from eventbridge.targets.ssrf_guard import SsrfGuard, describe_refusals
from eventbridge.version import __version__

#: CURLOPT_QUICK_EXIT, for which pycurl has no name: at exit, libcurl does not wait for a pending DNS lookup.
#: libcurl before 7.87 lacks the option, and waits.
_QUICK_EXIT = {322: 1} if pycurl.version_info()[2] >= 0x075700 else {}
#: CURLOPT_SUPPRESS_CONNECT_HEADERS, for which pycurl has no name: the headers of a proxy are not those of the target.
_SUPPRESS_CONNECT_HEADERS = 265
#: The maximum idle time of a connection, in seconds. Many servers close one after 5 s, and a request that is sent at
#: that moment fails without a response.
_IDLE_SECONDS = 4


_SCHEME_AND_HOST = re.compile("[^:]*://[^/?#]*")


@dataclass(frozen=True)
class Endpoint:
    """Settings that all requests of a target share: URL, timeouts, TLS verification, SSRF protection.

    Connecting, including TLS, may take `connect_seconds` of a request's `timeout_seconds`. `secrets` are the parts of
    the URL to remove from responses before they are stored. With `whole_responses`, everything that was read of a
    response's body, not only the stored part, is kept until the next request. `lines` are header lines of every
    request, and `prefix` begins the names of the headers with id, time and signature. With `compresses`, bodies are
    sent in the format gzip if that makes them smaller. With a `proxy`, `connect_to` is the checked address for its
    CONNECT, which `egress.routed` sets.
    """

    url: str = field(repr=False)
    timeout_seconds: float
    allow_http: bool
    guard: SsrfGuard
    tls: Tls = field(default_factory=Tls)
    secrets: tuple[SecretForm, ...] = field(default=(), repr=False)
    whole_responses: bool = False
    connect_seconds: float = 5.0
    method: str = "POST"
    lines: tuple[str | bytes, ...] = ()
    prefix: str = "webhook"
    compresses: bool = False
    proxy: Proxy | None = None
    connect_to: str = ""

    @property
    def kind(self) -> object:
        """Return the settings of a handle that never change; endpoints with equal settings can share handles.

        Not `connect_to`, because idle handles would remain whenever the address of a target changes.
        """
        secure = self.url.lower().startswith("https:")
        limits = self.timeout_seconds, self.connect_seconds
        return secure, self.method, limits, self.allow_http, self.guard, self.tls, self.proxy


class _DetachedSocket(socket.socket):
    """A socket that pycurl duplicates and drops; dropping it closes it without a ResourceWarning."""

    def __del__(self) -> None:
        self.close()


class _SocketCount:
    """Counts the sockets that this process has opened."""

    numbers = itertools.count(1)
    last = 0


def sockets_opened() -> int:
    """Return a number that changes whenever this process opens a socket for an http target."""
    return _SocketCount.last


class SocketGuard:
    """Opens the sockets of one handle's connections, except to addresses that the SSRF guard refuses.

    Without a guard all addresses are allowed: those of a proxy, which its connection allows.
    """

    __slots__ = ("_guard", "opened", "refusals")

    def __init__(self, guard: SsrfGuard | None) -> None:
        self._guard = guard
        self.refusals: list[str] = []
        self.opened = False

    def open(self, _purpose: int, address: pycurl.CurlSockAddr) -> socket.socket | int:
        """Return a socket for the resolved address that libcurl is about to connect to, or SOCKET_BAD."""
        refusal = None if self._guard is None else self._guard.refusal(address.addr[0])
        if refusal is not None:
            self.refusals.append(refusal)
            return int(pycurl.SOCKET_BAD)
        self.opened = True
        _SocketCount.last = next(_SocketCount.numbers)
        try:
            return _DetachedSocket(address.family, address.socktype, address.protocol)
        except OSError:  # such as too many open files; libcurl reports a failed connection
            return int(pycurl.SOCKET_BAD)

    def close(self) -> None:
        """Reset the state of the last request."""
        self.refusals.clear()
        self.opened = False

    def describe_refusal(self) -> str:
        """Return the refused addresses and the remedy."""
        return describe_refusals(self.refusals)


def easy_handle(
    endpoint: Endpoint,
    socket_guard: SocketGuard,
    before_request: Callable[[str, str, int, int], int],
    take_debug: Callable[[int, bytes], None],
    take_header: Callable[[bytes], object],
    take_body: Callable[[bytes], int | None],
) -> pycurl.Curl:
    """Return a handle that sends to an endpoint, with TLS 1.2 or later, and follows no redirect.

    `before_request` is called before each request, including repetitions by libcurl. For an https URL,
    `take_debug` is called with each line of libcurl's debug output, because only HTTP/2, which needs TLS, has refused
    streams.
    """
    curl = pycurl.Curl()
    tls = endpoint.tls
    options = _QUICK_EXIT | {
        pycurl.PROTOCOLS: pycurl.PROTO_HTTPS | (pycurl.PROTO_HTTP if endpoint.allow_http else 0),
        pycurl.POST: 1,
        pycurl.USERAGENT: f"EventBridge/{__version__}",
        pycurl.TIMEOUT_MS: round(endpoint.timeout_seconds * 1000),
        pycurl.CONNECTTIMEOUT_MS: round(min(endpoint.timeout_seconds, endpoint.connect_seconds) * 1000),
        pycurl.MAXLIFETIME_CONN: LIFETIME_SECONDS,
        pycurl.MAXAGE_CONN: _IDLE_SECONDS,
        pycurl.NOSIGNAL: 1,
        pycurl.FOLLOWLOCATION: 0,
        pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,  # the minimum
        pycurl.SSL_VERIFYPEER: 1,
        pycurl.SSL_VERIFYHOST: 2,
        pycurl.PROXY: "",  # with None, http_proxy and similar variables would apply
        pycurl.TCP_KEEPALIVE: 1,
        pycurl.OPENSOCKETFUNCTION: socket_guard.open,
        pycurl.PREREQFUNCTION: before_request,
        pycurl.HEADERFUNCTION: take_header,
        pycurl.WRITEFUNCTION: take_body,
    }
    if endpoint.method != "POST":
        options[pycurl.CUSTOMREQUEST] = endpoint.method
    if endpoint.url.lower().startswith("https:"):
        # HTTP/2 if the server offers it; a second transfer waits until it is clear whether it can share the connection
        options |= {pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS, pycurl.PIPEWAIT: 1}
        options |= {pycurl.VERBOSE: 1, pycurl.DEBUGFUNCTION: take_debug}
    else:
        options[pycurl.HTTP_VERSION] = pycurl.CURL_HTTP_VERSION_1_1
    if tls.ca_certificates is not None:
        options[pycurl.CAINFO_BLOB] = tls.ca_certificates
    elif tls.system_file is not None:
        options[pycurl.CAINFO] = str(tls.system_file)
    if tls.certificate is not None and tls.private_key is not None:
        options |= {pycurl.SSLCERT_BLOB: tls.certificate, pycurl.SSLKEY_BLOB: tls.private_key}
    options |= _proxy_options(endpoint)
    for option, value in options.items():
        curl.setopt(option, value)
    send_to(curl, endpoint.url)
    connect_through_proxy(curl, endpoint)
    if endpoint.proxy is not None and endpoint.proxy.tls.ca_certificates is not None:
        curl.unsetopt(pycurl.PROXY_CAINFO)
        curl.unsetopt(pycurl.PROXY_CAPATH)
    if tls.ca_certificates is not None:  # otherwise libcurl would also trust the CA certificates that it was built with
        curl.unsetopt(pycurl.CAINFO)
        curl.unsetopt(pycurl.CAPATH)
    return curl


def _proxy_options(endpoint: Endpoint) -> dict[int, Any]:
    proxy = endpoint.proxy
    if proxy is None:
        return {}
    options: dict[int, Any] = {
        pycurl.PROXY: proxy.url,
        pycurl.NOPROXY: "",  # otherwise no_proxy of the environment would apply, and the guard would not
        pycurl.HTTPPROXYTUNNEL: 1,
        pycurl.HEADEROPT: pycurl.HEADER_SEPARATE,  # the proxy gets none of the target's headers
        _SUPPRESS_CONNECT_HEADERS: 1,
    }
    if proxy.url.startswith("https:"):
        options |= _proxy_tls_options(proxy.tls)
    if proxy.credentials:
        options |= {pycurl.PROXYUSERPWD: proxy.credentials, pycurl.PROXYAUTH: pycurl.HTTPAUTH_BASIC}
    return options


def _proxy_tls_options(tls: Tls) -> dict[int, Any]:
    options: dict[int, Any] = {pycurl.PROXY_SSLVERSION: pycurl.SSLVERSION_TLSv1_2}  # the minimum
    if tls.ca_certificates is not None:
        options[pycurl.PROXY_CAINFO_BLOB] = tls.ca_certificates
    elif tls.system_file is not None:
        options[pycurl.PROXY_CAINFO] = str(tls.system_file)
    if tls.certificate is not None and tls.private_key is not None:
        options |= {pycurl.PROXY_SSLCERT_BLOB: tls.certificate, pycurl.PROXY_SSLKEY_BLOB: tls.private_key}
    return options


def connect_through_proxy(curl: pycurl.Curl, endpoint: Endpoint) -> None:
    """Set the address that a handle's next requests name to the proxy of an endpoint, if it has one."""
    if endpoint.proxy is None:
        return
    if not endpoint.connect_to:
        raise RuntimeError("an endpoint with a proxy must be routed first, because that checks its addresses")
    curl.setopt(pycurl.CONNECT_TO, [endpoint.connect_to])


def send_to(curl: pycurl.Curl, url: str) -> None:
    """Set the URL of a handle's next requests, whose path and query are sent byte for byte.

    The request target is set separately, because libcurl removes dot segments and rewrites `%2f` as `%2F`, which a
    service that verifies a signature over its URL would reject.
    """
    curl.setopt(pycurl.URL, url)
    path_and_query = _SCHEME_AND_HOST.sub("", url, count=1).partition("#")[0]
    curl.setopt(pycurl.REQUEST_TARGET, path_and_query if path_and_query.startswith("/") else f"/{path_and_query}")
