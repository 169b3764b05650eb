"""One request and its answer on a libcurl easy handle, used again for the next."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pycurl

from eventbridge import __version__
from eventbridge.delivery import Answer
from eventbridge.targets.credentials import Credentials
from eventbridge.targets.protocol import Request

#: What of an answer's body is kept, and where reading stops: a target must not fill memory or a budget.
KEPT_BYTES = 20 * 1024
READ_BYTES = 1024 * 1024

#: A connection that takes longer is no better than none.
_CONNECT_SECONDS = 5.0

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


@dataclass(frozen=True)
class Endpoint:
    """What all requests of a target share; `ca_file` holds the authorities to trust, None = libcurl's own.

    `secrets` are what an answer may repeat of the URL and must not be kept, the longest first.
    """

    url: str = field(repr=False)
    timeout_seconds: float
    allow_http: bool
    ca_file: Path | None
    secrets: tuple[bytes, ...] = field(default=(), repr=False)


class Exchange:
    """An easy handle set up for one endpoint, the request that is out on it, and what has come back."""

    __slots__ = ("_lines", "_parts", "_read_bytes", "_secrets", "credentials", "curl", "request", "started_at")

    def __init__(self, endpoint: Endpoint) -> None:
        self.request: Request | None = None
        self.credentials: Credentials | None = None
        self.started_at = datetime.min.replace(tzinfo=UTC)
        self._lines: list[bytes] = []
        self._parts: list[bytes] = []
        self._read_bytes = 0
        self._secrets = endpoint.secrets
        self.curl = self._easy(endpoint)

    def prepare(self, lines: Sequence[str | bytes], payload: bytes) -> None:
        """Set the handle up for one request with these header lines."""
        self._lines.clear()
        self._parts.clear()
        self._read_bytes = 0
        self.curl.setopt(pycurl.HTTPHEADER, lines)
        self.curl.setopt(pycurl.POSTFIELDS, payload)

    def forget(self) -> None:
        """Let go of the request, so that an idle handle holds no payload."""
        self.request = None
        self.credentials = None
        self._parts.clear()

    def answer(self, error_number: int, message: str) -> Answer:
        """Return what the ended transfer came to; `error_number` and `message` are libcurl's."""
        cut_off = error_number == pycurl.E_WRITE_ERROR and self._read_bytes > READ_BYTES
        if error_number and not cut_off:
            return self._failed(error_number, message)
        code: int = self.curl.getinfo(pycurl.RESPONSE_CODE)
        accepted = 200 <= code < 300
        wishes = {} if accepted else self._header_fields()
        return Answer(
            accepted=accepted,
            started_at=self.started_at,
            duration_ms=self._duration_ms(),
            code=code,
            retry_after=wishes.get("retry-after"),
            abort=wishes.get("webhook-delivery", "").lower() == "abort-message",
            response_head=self._response_head(),
        )

    def interrupted(self, now: datetime) -> Answer:
        """Return the answer of a transfer that was broken off at `now`."""
        passed_ms = (now - self.started_at).total_seconds() * 1000
        return self._no_answer("Interrupted", "the push ended before the answer came", passed_ms)

    def _failed(self, error_number: int, message: str) -> Answer:
        # A status whose body breaks off is no answer (RFC 9112, 8): it must be recorded as incomplete
        code = self.curl.getinfo(pycurl.RESPONSE_CODE)
        detail = f"{message} (after status {code})" if code else message
        return self._no_answer(self._error_class(error_number), detail, self._duration_ms())

    def _no_answer(self, error_class: str, error: str, duration_ms: float) -> Answer:
        return Answer(
            accepted=False,
            started_at=self.started_at,
            duration_ms=duration_ms,
            error_class=error_class,
            error=self._veiled(error.encode(errors="backslashreplace")).decode(),
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
        return self._veiled(b"".join(self._parts))[:KEPT_BYTES]

    def _veiled(self, text: bytes) -> bytes:
        """Return text with asterisks for what it repeats of a secret URL; no byte moves."""
        for secret in self._secrets:
            text = text.replace(secret, b"*" * len(secret))
        return text

    def _header_fields(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(b"HTTP/"):  # an interim answer came before: only the last one counts
                fields.clear()
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.strip().lower()] = value.strip()
        return fields

    def _take_body(self, part: bytes) -> int | None:
        # and as much more as a secret is long: half of one would not be found
        if self._read_bytes < KEPT_BYTES + max(map(len, self._secrets), default=0):
            self._parts.append(part)
        self._read_bytes += len(part)
        return -1 if self._read_bytes > READ_BYTES else None  # -1 ends the transfer

    def _easy(self, endpoint: Endpoint) -> pycurl.Curl:
        curl = pycurl.Curl()
        protocols = pycurl.PROTO_HTTPS | (pycurl.PROTO_HTTP if endpoint.allow_http else 0)
        options = {
            pycurl.URL: endpoint.url,
            pycurl.PROTOCOLS: protocols,
            pycurl.POST: 1,
            pycurl.USERAGENT: f"EventBridge/{__version__}",
            pycurl.TIMEOUT_MS: round(endpoint.timeout_seconds * 1000),
            pycurl.CONNECTTIMEOUT_MS: round(min(endpoint.timeout_seconds, _CONNECT_SECONDS) * 1000),
            pycurl.NOSIGNAL: 1,
            pycurl.FOLLOWLOCATION: 0,
            pycurl.SSL_VERIFYPEER: 1,
            pycurl.SSL_VERIFYHOST: 2,
            pycurl.PROXY: "",  # not None: http_proxy and its kin would count
            pycurl.TCP_KEEPALIVE: 1,
            pycurl.HEADERFUNCTION: self._lines.append,
            pycurl.WRITEFUNCTION: self._take_body,
        }
        if endpoint.ca_file is not None:
            options[pycurl.CAINFO] = str(endpoint.ca_file)
        for option, value in options.items():
            curl.setopt(option, value)
        return curl
