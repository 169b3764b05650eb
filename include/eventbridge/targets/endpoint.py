"""Where requests of one kind go, and the libcurl handle that carries them there under the installation's rules."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import pycurl

from eventbridge.targets.redaction import SecretForm
from eventbridge.targets.ssrf_guard import SETTING, SsrfGuard
from eventbridge.targets.tls import Tls
from eventbridge.version import __version__

#: CURLOPT_QUICK_EXIT, for which pycurl has no name: what looks a name up when the time is over is not waited for.
#: A libcurl older than 7.87 has it not, and waits.
_QUICK_EXIT = {322: 1} if pycurl.version_info()[2] >= 0x075700 else {}
#: After so many seconds a connection is not used again: a streaming task keeps its connections, and a name may lead
#: elsewhere.
_LIFETIME_SECONDS = 60
#: A connection that was idle for longer is not used again. Many servers close one after 5 s of idleness, and a request
#: that crosses with the close fails without a response.
_IDLE_SECONDS = 4


_SCHEME_AND_HOST = re.compile("[^:]*://[^/?#]*")


@dataclass(frozen=True)
class Endpoint:
    """What all requests of a target share: address, time, what is verified, and where they must not go.

    Connecting, TLS included, may take `connect_seconds` of the `timeout_seconds` of a request.
    `secrets` are what a response may repeat of the URL and must not be kept. `whole_responses`: of a
    response's body all that is read is there until the next request, not only what is kept of it.
    """

    url: str = field(repr=False)
    timeout_seconds: float
    allow_http: bool
    guard: SsrfGuard
    tls: Tls = field(default_factory=Tls)
    secrets: tuple[SecretForm, ...] = field(default=(), repr=False)
    whole_responses: bool = False
    connect_seconds: float = 5.0

    @property
    def kind(self) -> object:
        """What a handle is set up with for good: one of another endpoint of this kind needs another URL only."""
        secure = self.url.lower().startswith("https:")
        return secure, self.timeout_seconds, self.connect_seconds, self.allow_http, self.guard, self.tls


class _DetachedSocket(socket.socket):
    """A socket that pycurl makes a duplicate of and lets go: closed then, without a warning about it."""

    def __del__(self) -> None:
        self.close()


class _SocketCount:
    """Sockets that this process has opened: each gets the next of `numbers`."""

    numbers = itertools.count(1)
    last = 0


def sockets_opened() -> int:
    """Return a number that is another one once this process has opened a socket for a connection."""
    return _SocketCount.last


class SocketGuard:
    """Opens the sockets of one handle's connections, but none to an address that the guard refuses."""

    __slots__ = ("_guard", "opened", "refusals")

    def __init__(self, guard: SsrfGuard) -> None:
        self._guard = guard
        self.refusals: list[str] = []
        self.opened = False

    def open(self, _purpose: int, address: pycurl.CurlSockAddr) -> socket.socket | int:
        """Return a socket for an address that libcurl is about to connect to, the one that the name led to just now."""
        refusal = self._guard.refusal(address.addr[0])
        if refusal is not None:
            self.refusals.append(refusal)
            return int(pycurl.SOCKET_BAD)
        self.opened = True
        _SocketCount.last = next(_SocketCount.numbers)
        try:
            return _DetachedSocket(address.family, address.socktype, address.protocol)
        except OSError:  # such as too many open files: libcurl has its words for a connection that failed
            return int(pycurl.SOCKET_BAD)

    def close(self) -> None:
        """Forget what the last request met."""
        self.refusals.clear()
        self.opened = False

    def told(self) -> str:
        """Return what was refused, and what to do about it."""
        shown = "; ".join(dict.fromkeys(self.refusals))
        return f"{shown}: nothing is delivered there unless {SETTING} names its block"


def easy_handle(
    endpoint: Endpoint,
    socket_guard: SocketGuard,
    before_request: Callable[[str, str, int, int], int],
    take_debug: Callable[[int, bytes], None],
    take_header: Callable[[bytes], object],
    take_body: Callable[[bytes], int | None],
) -> pycurl.Curl:
    """Return a handle that POSTs to an endpoint: TLS 1.2 at least, no redirect, no proxy, no address inside.

    `before_request` is called before each request, and before each one that libcurl repeats by itself. `take_debug` is
    called with each line of libcurl's debugging output, over TLS: HTTP/2 needs it.
    """
    curl = pycurl.Curl()
    tls = endpoint.tls
    options = _QUICK_EXIT | {
        pycurl.PROTOCOLS: pycurl.PROTO_HTTPS | (pycurl.PROTO_HTTP if endpoint.allow_http else 0),
        pycurl.POST: 1,
        pycurl.USERAGENT: f"EventBridge/{__version__}",
        pycurl.TIMEOUT_MS: round(endpoint.timeout_seconds * 1000),
        pycurl.CONNECTTIMEOUT_MS: round(min(endpoint.timeout_seconds, endpoint.connect_seconds) * 1000),
        pycurl.MAXLIFETIME_CONN: _LIFETIME_SECONDS,
        pycurl.MAXAGE_CONN: _IDLE_SECONDS,
        pycurl.NOSIGNAL: 1,
        pycurl.FOLLOWLOCATION: 0,
        pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,  # at least
        pycurl.SSL_VERIFYPEER: 1,
        pycurl.SSL_VERIFYHOST: 2,
        pycurl.PROXY: "",  # not None: http_proxy and its kin would count
        pycurl.TCP_KEEPALIVE: 1,
        pycurl.OPENSOCKETFUNCTION: socket_guard.open,
        pycurl.PREREQFUNCTION: before_request,
        pycurl.HEADERFUNCTION: take_header,
        pycurl.WRITEFUNCTION: take_body,
    }
    if endpoint.url.lower().startswith("https:"):
        # HTTP/2 where the server offers it; whoever comes second waits to see whether one connection carries both
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
    for option, value in options.items():
        curl.setopt(option, value)
    send_to(curl, endpoint.url)
    if tls.ca_certificates is not None:  # and nobody else: libcurl was built with files of its own
        curl.unsetopt(pycurl.CAINFO)
        curl.unsetopt(pycurl.CAPATH)
    return curl


def send_to(curl: pycurl.Curl, url: str) -> None:
    """Set the URL of a handle's next requests, whose path and query are sent byte for byte.

    The request target is set beside the URL, because libcurl removes dot segments and rewrites `%2f` as `%2F`: a
    service that checks a signature over its URL would refuse that.
    """
    curl.setopt(pycurl.URL, url)
    path_and_query = _SCHEME_AND_HOST.sub("", url, count=1).partition("#")[0]
    curl.setopt(pycurl.REQUEST_TARGET, path_and_query if path_and_query.startswith("/") else f"/{path_and_query}")
