"""Forwards events to a URL of a developer: one signed request each, without retries, records or SSRF protection."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

import pycurl

from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.targets.http.headers import Signer, SigningKey, parse_secrets
from eventbridge.targets.http.tls import tls_of
from eventbridge.version import __version__

TIMEOUT_SECONDS: Final = 10.0
_SECRET_BYTES: Final = 24
_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Forwarded:
    """The result of one request: the status of its response, or the error if there was no response."""

    status: int | None
    error: str | None
    duration_ms: float

    @property
    def accepted(self) -> bool:
        """Return whether the receiver accepted the event."""
        return self.status is not None and 200 <= self.status < 300


def new_secret() -> str:
    """Return a new secret of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")


class Forwarder:
    """Posts events to `url` in structured JSON, signed with `secret` as in Standard Webhooks.

    Raises UserError for a URL that is not http or https or has credentials, and for an invalid secret; the message
    shows neither. A request ends early once `stopped` returns True. Redirects are not followed, and proxies are not
    used.
    """

    def __init__(
        self, url: str, secret: str, *, clock: Callable[[], datetime], stopped: Callable[[], bool] = lambda: False
    ) -> None:
        _require_http(url)
        self._signer = Signer(_keys(secret))
        self._clock = clock
        curl = self._curl = pycurl.Curl()
        for option, value in {
            pycurl.URL: url,
            pycurl.POST: 1,
            pycurl.FOLLOWLOCATION: 0,
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.PROXY: "",  # not that of the environment, which may not reach this host
            pycurl.TIMEOUT_MS: int(TIMEOUT_SECONDS * 1000),
            pycurl.NOSIGNAL: 1,
            pycurl.WRITEFUNCTION: lambda _: None,
            pycurl.NOPROGRESS: 0,
            pycurl.XFERINFOFUNCTION: lambda *_: int(stopped()),
        }.items():
            curl.setopt(option, value)
        system_file = tls_of(None).system_file
        if system_file is not None:
            curl.setopt(pycurl.CAINFO, str(system_file))

    def forward(self, message_id: str, body: bytes) -> Forwarded:
        """Post one event; `message_id`, the same for each copy of an event, becomes `webhook-id`."""
        timestamp = str(int(self._clock().timestamp()))
        headers = [
            "content-type: application/cloudevents+json; charset=UTF-8",
            f"user-agent: eventbridge/{__version__}",
            f"webhook-id: {message_id}",
            f"webhook-timestamp: {timestamp}",
            f"webhook-signature: {self._signer.sign(message_id, timestamp, body)}",
            "expect:",  # libcurl would wait a second for a server that does not know it
        ]
        self._curl.setopt(pycurl.HTTPHEADER, headers)
        self._curl.setopt(pycurl.POSTFIELDS, body)
        try:
            self._curl.perform()
        except pycurl.error as error:
            number, text = error.args
            interrupted = number == pycurl.E_ABORTED_BY_CALLBACK
            return Forwarded(None, "interrupted" if interrupted else str(text), self._duration_ms())
        return Forwarded(self._curl.getinfo(pycurl.RESPONSE_CODE), None, self._duration_ms())

    def close(self) -> None:
        """Close the connection."""
        self._curl.close()

    def _duration_ms(self) -> float:
        return round(float(self._curl.getinfo(pycurl.TOTAL_TIME)) * 1000, 1)


def shown_url(url: str) -> str:
    """Return scheme, host and path of a URL; its query may have secrets."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _require_http(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not _VISIBLE.fullmatch(url):
        raise UserError("this is not a URL to forward events to. Write it whole, such as http://localhost:3000/hook")
    if "@" in parts.netloc:
        raise UserError(
            "the URL to forward events to has credentials. Leave them out, and check the signature of each request"
        )


def _keys(secret: str) -> tuple[SigningKey, ...]:
    try:
        keys = parse_secrets("", secret)
    except ConnectionUnusable:  # its message is about a connection
        keys = ()
    if not keys:
        raise UserError("the secret is not one of Standard Webhooks. Write whsec_ and the secret's bytes in base64")
    return keys
