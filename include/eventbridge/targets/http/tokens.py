"""Obtains access tokens with OAuth2 client credentials (RFC 6749, 4.4), and caches them until shortly before expiry."""

from __future__ import annotations

import base64
import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote_plus, urlencode, urlsplit

from eventbridge.config.redaction import SecretForm, forms_of
from eventbridge.errors import EventBridgeError

#: A token is not used in its last 60 s, or the last fifth of its lifetime if that is shorter, so that the token
#: outlasts the requests sent with it.
_MARGIN = timedelta(seconds=60)
_MARGIN_SHARE = 0.2
#: The assumed lifetime of a token without expires_in, which RFC 6749, 5.1, makes optional, and the maximum lifetime.
_DEFAULT_SECONDS = 300.0
_LONGEST_SECONDS = 86_400.0

#: The maximum length of a token; servers usually accept no longer header lines.
LONGEST_TOKEN = 8_192


class TokenUnavailable(EventBridgeError):
    """A token endpoint returned no token; the deliveries that need it are retried."""


@dataclass(frozen=True)
class TokenClient:
    """An OAuth2 client and its token endpoint; equal clients share a token. Its repr shows no secret.

    With `airflow_login`, the endpoint is that of an Airflow: it takes id and secret as a user's name and password, in
    JSON.
    """

    connection: str
    url: str = field(repr=False)
    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    scope: str = ""
    audience: str = ""
    secret_in_body: bool = False
    airflow_login: bool = False

    @property
    def place(self) -> str:
        """Return how messages name the endpoint."""
        what = "login" if self.airflow_login else "token_url"
        return f"{self.origin} ({what} of connection {self.connection!r})"

    @property
    def origin(self) -> str:
        """Return the scheme, host and port of the endpoint."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def secrets(self) -> tuple[SecretForm, ...]:
        """Return the values to remove from responses."""
        return forms_of([self.client_secret, quote_plus(self.client_secret), self._pair, self.basic])

    @property
    def basic(self) -> str:
        """Return the id and secret for HTTP basic authentication, form-encoded (RFC 6749, 2.3.1) and in base64."""
        return base64.b64encode(self._pair.encode()).decode("ascii")

    @property
    def _pair(self) -> str:
        return f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"

    def request(self) -> tuple[list[str | bytes], bytes]:
        """Return header lines and body of a request for a token."""
        if self.airflow_login:
            login = {"username": self.client_id, "password": self.client_secret}
            return ["content-type: application/json", "accept: application/json"], json.dumps(login).encode()
        form = {"grant_type": "client_credentials", "scope": self.scope, "audience": self.audience}
        lines: list[str | bytes] = ["content-type: application/x-www-form-urlencoded", "accept: application/json"]
        if self.secret_in_body:
            form |= {"client_id": self.client_id, "client_secret": self.client_secret}
        else:
            lines.append(f"authorization: Basic {self.basic}")
        return lines, urlencode({name: value for name, value in form.items() if value}).encode()


@dataclass(frozen=True)
class AccessToken:
    """An access token, and its lifetime in seconds."""

    text: str = field(repr=False)
    seconds: float


@dataclass
class _CachedToken:
    lock: threading.Lock = field(default_factory=threading.Lock)
    text: str = ""
    good_until: datetime | None = None
    failures: int = 0
    failure: str = ""
    rests_until: float = -math.inf


class AccessTokens:
    """The access tokens of one process, one for each client; threads that need the same one request it once.

    `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: dict[TokenClient, _CachedToken] = {}

    def token(
        self,
        client: TokenClient,
        ask: Callable[[float], AccessToken],
        now: datetime,
        until: datetime,
        refused: str = "",
    ) -> str:
        """Return a token that is valid for a while, but not `refused`; `ask(seconds)` requests one within that time.

        Raises TokenUnavailable if none is available before `until`. A failure also applies to all threads that waited
        for the same request, and to every call for as long again as the request took. Otherwise hundreds of targets
        that share a hanging endpoint would wait one after another and block other targets.
        """
        with self._lock:
            cached = self._cached.setdefault(client, _CachedToken())
        failures = cached.failures
        seconds = (until - now).total_seconds()
        if seconds <= 0 or not cached.lock.acquire(timeout=seconds):
            raise TokenUnavailable(f"No time was left to request a token from {client.origin}.")
        try:
            if cached.good_until is not None and now < cached.good_until and cached.text != refused:
                return cached.text
            if cached.failures != failures or self._clock() < cached.rests_until:
                raise TokenUnavailable(cached.failure)
            token = self._ask(cached, ask, seconds)
            margin = min(_MARGIN, timedelta(seconds=token.seconds * _MARGIN_SHARE))
            cached.text, cached.good_until = token.text, now + timedelta(seconds=token.seconds) - margin
            return token.text
        finally:
            cached.lock.release()

    def _ask(self, cached: _CachedToken, ask: Callable[[float], AccessToken], seconds: float) -> AccessToken:
        began = self._clock()
        try:
            return ask(seconds)
        except TokenUnavailable as error:
            ended = self._clock()
            cached.failures += 1
            cached.failure, cached.rests_until = str(error), ended + (ended - began)
            raise


def read_token(client: TokenClient, body: bytes) -> AccessToken:
    """Return the token in a response (RFC 6749, 5.1). Raises TokenUnavailable, whose message shows none of it."""
    where = client.place
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):
        raise TokenUnavailable(f"{where} did not respond with JSON. Check that it is the token endpoint.") from None
    text = response.get("access_token") if isinstance(response, dict) else None
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable() or " " in text:
        raise TokenUnavailable(
            f"{where} responded with JSON that has no usable access_token. Check that it is the token endpoint."
        )
    if len(text) > LONGEST_TOKEN:
        what = f"responded with an access_token of {len(text):,} characters; the limit is {LONGEST_TOKEN:,}"
        raise TokenUnavailable(f"{where} {what}. Request fewer scopes or claims.")
    if str(response.get("token_type", "bearer")).lower() != "bearer":
        raise TokenUnavailable(f"{where} returned a token that is not a bearer token, and cannot be sent.")
    return AccessToken(text, _seconds(response.get("expires_in")))


def why_refused(body: bytes, veil: Callable[[bytes], bytes]) -> str:
    """Return the error of a response (RFC 6749, 5.2), e.g. `invalid_client: no such client`; empty if it has none.

    `veil` removes secrets before the error is truncated, because a truncated secret would not be found.
    """
    try:
        response = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    parts = [response.get(name) for name in ("error", "error_description")] if isinstance(response, dict) else []
    texts = [veil(each.encode(errors="backslashreplace")).decode() for each in parts if isinstance(each, str) and each]
    return ": ".join(" ".join(each.split())[:200] for each in texts)


def _seconds(value: object) -> float:
    try:
        seconds = float(value) if isinstance(value, int | float | str) else _DEFAULT_SECONDS
    except (ValueError, OverflowError):  # an integer may be too large for a float
        seconds = _DEFAULT_SECONDS
    return min(seconds, _LONGEST_SECONDS) if seconds > 0 else _DEFAULT_SECONDS
