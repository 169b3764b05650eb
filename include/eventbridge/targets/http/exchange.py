"""Handles one request and its response on a libcurl easy handle, which is then reused for the next request."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pycurl

from eventbridge.config.redaction import SecretForm, mask, veiled
from eventbridge.model.outcome import PROXY_FAILED, Response
from eventbridge.policy.batch_request import ResponseContent
from eventbridge.targets.http.credentials import NO_CREDENTIALS, Credentials
from eventbridge.targets.http.endpoint import Endpoint, SocketGuard, connect_through_proxy, easy_handle, send_to
from eventbridge.targets.protocol import Request

#: The maximum size of the stored part of a response's body, and the size at which reading stops, so that no target
#: exhausts memory or a time budget.
KEPT_BYTES = 20 * 1024
READ_BYTES = 1024 * 1024

#: The time in a message of libcurl; it is left out, because equal failures are then counted as one cause.
_TOOK = re.compile(r" after \d+ (?:ms|milliseconds)\b")

_TIMEOUT = frozenset({pycurl.E_OPERATION_TIMEDOUT})
_HOST_UNKNOWN = frozenset({pycurl.E_COULDNT_RESOLVE_HOST})
_TLS = frozenset(
    {
        pycurl.E_PEER_FAILED_VERIFICATION,
        pycurl.E_SSL_CACERT_BADFILE,
        pycurl.E_SSL_CERTPROBLEM,
        pycurl.E_SSL_CIPHER,
        pycurl.E_SSL_CONNECT_ERROR,
        pycurl.E_SSL_CRL_BADFILE,
        pycurl.E_SSL_ENGINE_INITFAILED,
        pycurl.E_SSL_ENGINE_NOTFOUND,
        pycurl.E_SSL_ENGINE_SETFAILED,
        pycurl.E_SSL_INVALIDCERTSTATUS,
        pycurl.E_SSL_ISSUER_ERROR,
        pycurl.E_SSL_PINNEDPUBKEYNOTMATCH,
        pycurl.E_USE_SSL_FAILED,
    }
)
#: If a request was sent, these errors mean that its connection closed without a response. libcurl connects again to
#: repeat the request, and either that fails or `_allow_request` refuses it.
_CLOSED = _HOST_UNKNOWN | _TLS | {pycurl.E_ABORTED_BY_CALLBACK, pycurl.E_COULDNT_CONNECT, pycurl.E_GOT_NOTHING}
_CLOSED_TEXT = "the target closed the connection before a response came"
#: libcurl's debug output for a stream that was reset as refused, or excluded by a GOAWAY.
_REFUSED = b"refused by server"

#: libcurl's limit for a response's headers. A longer header section has no distinct error number.
_HEAD_BYTES = 300 * 1024


class Exchange:
    """An easy handle for one endpoint, with its current request and response.

    `closed_ports` contains the local ports of connections that must not be reused.
    """

    __slots__ = (
        "_alone",
        "_closed_ports",
        "_lines",
        "_parts",
        "_read_bytes",
        "_refused",
        "_room_bytes",
        "_secrets",
        "_socket_guard",
        "credentials",
        "curl",
        "endpoint",
        "request",
        "sent",
        "stalled_before",
        "started_at",
    )

    def __init__(self, endpoint: Endpoint, closed_ports: set[int] | None = None) -> None:
        self._closed_ports = set() if closed_ports is None else closed_ports
        self.request: Request | None = None
        self.credentials = NO_CREDENTIALS
        self.started_at = datetime.min.replace(tzinfo=UTC)
        self.stalled_before = 0.0  # the engine's stall time when the request began
        self.endpoint = endpoint
        self._lines: list[bytes] = []
        self._parts: list[bytes] = []
        self._read_bytes = 0
        self.sent = False  # whether the request, or part of it, was sent
        self._refused = False  # whether the server reported that it did not process the request
        self._alone = False  # whether the request gets a new connection
        self._hide(())
        self._socket_guard = SocketGuard(endpoint.guard if endpoint.proxy is None else None)
        self.curl = easy_handle(
            endpoint, self._socket_guard, self._allow_request, self._take_debug, self._lines.append, self._take_body
        )

    def turn_to(self, endpoint: Endpoint) -> None:
        """Switch to another endpoint of the same kind, without credentials."""
        if endpoint is not self.endpoint:
            self.endpoint = endpoint
            self.credentials = NO_CREDENTIALS
            send_to(self.curl, endpoint.url)
            connect_through_proxy(self.curl, endpoint)
            self._hide(())

    def use(self, credentials: Credentials) -> None:
        """Set the credentials of the next requests."""
        if credentials.query != self.credentials.query:
            url = self.endpoint.url
            send_to(self.curl, with_query(url, credentials.query) if credentials.query else url)
        self.credentials = credentials
        self._hide(credentials.secrets)

    def prepare(self, lines: Sequence[str | bytes], payload: bytes) -> None:
        """Prepare the handle for one request with these header lines."""
        self._read_bytes = 0
        self.sent = self._refused = False
        self.curl.setopt(pycurl.HTTPHEADER, lines)
        self.curl.setopt(pycurl.POSTFIELDS, payload)

    def perform(self) -> Response:
        """Send the prepared request in this thread and return its response."""
        number, message = 0, ""
        try:
            self.curl.perform()
        except pycurl.error as error:
            number, message = error.args
        return self.response(number, message)

    def connect_again(self) -> None:
        """Use a new connection for the request, which has not been sent."""
        self._alone = True
        self.curl.setopt(pycurl.FRESH_CONNECT, 1)

    def forget(self) -> None:
        """Release the request and its response, so that an idle handle keeps neither."""
        self.request = None
        self._lines.clear()
        self._parts.clear()
        if self._socket_guard.opened or self._socket_guard.refusals:
            self._socket_guard.close()
        if self._alone:
            self._alone = False
            self.curl.setopt(pycurl.FRESH_CONNECT, 0)

    def close(self) -> None:
        """Close the handle."""
        self.curl.close()

    @property
    def body(self) -> bytes:
        """Return the kept part of the response's body, secrets included."""
        return b"".join(self._parts)

    def header(self, name: str) -> str | None:
        """Return a header of the ended transfer's response, by its name in lower case."""
        return self._header_fields().get(name)

    def content(self) -> ResponseContent:
        """Return the body and headers of the ended transfer's response for `batch_request`, secrets included."""
        fields = self._header_fields()
        return ResponseContent(self.body, fields.get("content-type", ""), fields.get("retry-after"))

    def response(self, error_number: int, message: str) -> Response:
        """Return the result of the ended transfer; `error_number` and `message` are libcurl's."""
        if error_number and not self._is_cut_off(error_number):
            return self._failure(error_number, message)
        code: int = self.curl.getinfo(pycurl.RESPONSE_CODE)
        if 200 <= code < 300:
            return Response(True, self.started_at, self._duration_ms(), code, response_head=self._response_head())
        requests = self._header_fields()
        return Response(
            accepted=False,
            started_at=self.started_at,
            duration_ms=self._duration_ms(),
            code=code,
            retry_after=requests.get("retry-after"),
            abort=requests.get("webhook-delivery", "").lower() == "abort-message",
            response_head=self._response_head(),
        )

    def veiled(self, text: bytes) -> bytes:
        """Return text without the secrets of the endpoint and of the credentials, as `redaction.veiled` does."""
        return veiled(text, self._secrets) if text else text

    def interrupted(self, now: datetime) -> Response:
        """Return the response of a transfer that was interrupted at `now`."""
        passed_ms = (now - self.started_at).total_seconds() * 1000
        return self._no_response("Interrupted", "the push ended before the response came", passed_ms)

    def _is_cut_off(self, error_number: int) -> bool:
        """Return whether the transfer was ended because its response is too large; the status still counts."""
        if error_number == pycurl.E_WRITE_ERROR:
            return self._read_bytes > READ_BYTES
        if error_number != pycurl.E_RECV_ERROR or self.curl.getinfo(pycurl.RESPONSE_CODE) < 200:
            return False
        return sum(map(len, self._lines)) > _HEAD_BYTES

    def _failure(self, error_number: int, message: str) -> Response:
        if self.sent and error_number in _CLOSED:
            return self._no_response("NetworkError", _CLOSED_TEXT, self._duration_ms())
        if self._socket_guard.refusals and not self._socket_guard.opened:
            return self._no_response("AddressRefused", self._socket_guard.describe_refusal(), self._duration_ms())
        if (fault := self._proxy_fault(error_number, message)) is not None:
            return self._no_response(PROXY_FAILED, fault, self._duration_ms())
        # a truncated body makes the response incomplete (RFC 9112, 8), so its status does not count
        code = self.curl.getinfo(pycurl.RESPONSE_CODE)
        detail = f"{message} (after status {code})" if code else message
        return self._no_response(self._error_class(error_number), _TOOK.sub("", detail), self._duration_ms())

    def _proxy_fault(self, error_number: int, message: str) -> str | None:
        """Return why the endpoint's proxy opened no tunnel; None if it did, or if there is no proxy."""
        proxy = self.endpoint.proxy
        if proxy is None or self.sent:
            return None
        code: int = self.curl.getinfo(pycurl.HTTP_CONNECTCODE)
        # A target whose handshake fails is a TLS error: what cannot be received before it is the proxy's own response.
        is_open = 200 <= code < 300
        if is_open and error_number != pycurl.E_RECV_ERROR:
            return None
        if code == 407:
            return f"{proxy.name} responded to CONNECT with 407. Check the login and password of its connection"
        return f"{proxy.name} responded to CONNECT with {code}" if code and not is_open else f"{proxy.name}: {message}"

    def _no_response(self, error_class: str, error: str, duration_ms: float) -> Response:
        return Response(
            accepted=False,
            started_at=self.started_at,
            duration_ms=duration_ms,
            error_class=error_class,
            # the message is libcurl's or ours, and contains a short secret only by chance
            error=mask(error.encode(errors="backslashreplace"), self._secrets).decode(),
            response_head=self._response_head(),
        )

    def _error_class(self, error_number: int) -> str:
        if error_number in _TIMEOUT:
            return "Timeout"
        if error_number in _HOST_UNKNOWN:
            return "HostUnknown"
        if error_number in _TLS:
            return "TlsError"
        if error_number == pycurl.E_COULDNT_CONNECT and self.curl.getinfo(pycurl.OS_ERRNO) == errno.ECONNREFUSED:
            return "ConnectionRefused"
        return "NetworkError"

    def _duration_ms(self) -> float:
        seconds: float = self.curl.getinfo(pycurl.TOTAL_TIME)
        return seconds * 1000

    def _response_head(self) -> bytes:
        return self.veiled(b"".join(self._parts))[:KEPT_BYTES] if self._parts else b""

    def _hide(self, secrets: tuple[SecretForm, ...]) -> None:
        of_proxy = () if self.endpoint.proxy is None else self.endpoint.proxy.secrets
        self._secrets = (*self.endpoint.secrets, *of_proxy, *secrets)
        # exceeds the limit by the longest form of a secret, because a truncated secret would not be found
        kept = READ_BYTES if self.endpoint.whole_responses else KEPT_BYTES
        self._room_bytes = kept + max((form.longest for form in self._secrets), default=0)

    def _header_fields(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(b"HTTP/"):  # discard an interim response, as only the last one counts
                fields.clear()
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.strip().lower()] = value.strip()
        return fields

    def _allow_request(self, _their_address: str, _our_address: str, _their_port: int, our_port: int) -> int:
        """Allow libcurl to send the request once, on a connection that the server has not closed.

        libcurl repeats a request whose connection closes without a response. Only a request that an HTTP/2 server
        refused is repeated, because the server thereby states that it did not process it (RFC 9113, 8.7).
        """
        if self.sent and not self._refused:
            return int(pycurl.PREREQFUNC_ABORT)
        self._refused = False
        if our_port in self._closed_ports:
            if not self._socket_guard.opened:
                return int(pycurl.PREREQFUNC_ABORT)
            self._closed_ports.discard(our_port)  # a new connection that reuses the port of a closed one
        self.sent = True
        return int(pycurl.PREREQFUNC_OK)

    def _take_debug(self, kind: int, line: bytes) -> None:
        """Note that a server refused the request, which libcurl reports only in its debug output."""
        if kind == pycurl.INFOTYPE_TEXT and _REFUSED in line:
            self._refused = True

    def _take_body(self, part: bytes) -> int | None:
        if self._read_bytes < self._room_bytes:
            self._parts.append(part)
        self._read_bytes += len(part)
        return -1 if self._read_bytes > READ_BYTES else None  # -1 ends the transfer


def with_query(url: str, query: str) -> str:
    """Return a URL with one more parameter, `name=value`; a #fragment is removed, as it is never sent."""
    url = url.partition("#")[0]
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}{query}"
