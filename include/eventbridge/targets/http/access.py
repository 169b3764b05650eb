"""Provides the credentials of a target's requests from its connection, with an access token if needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import datetime

from eventbridge.fault_points import reach
from eventbridge.targets.http.credentials import Credentials
from eventbridge.targets.http.egress import AddressRefused, HostUnknown, routed
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.exchange import Exchange
from eventbridge.targets.http.handshake import Handshake
from eventbridge.targets.http.tokens import (
    AccessToken,
    AccessTokens,
    TokenClient,
    TokenUnavailable,
    read_token,
    why_refused,
)

#: The access tokens of this process.
_TOKENS = AccessTokens()


class Access:
    """Provides a target's credentials; `read` reads its connection, `token_endpoint` returns its token endpoint.

    With a `handshake`, the target must have agreed to get requests.
    """

    def __init__(
        self,
        read: Callable[[], Credentials],
        token_endpoint: Callable[[TokenClient, float], Endpoint],
        clock: Callable[[], datetime],
        handshake: Handshake | None = None,
    ) -> None:
        self.handshake = handshake
        self._read = read
        self._token_endpoint = token_endpoint
        self._clock = clock
        self._configured = read()
        self._token = ""
        self._current = self._configured

    @property
    def can_block(self) -> bool:
        """Return whether `ready` may send a request of its own and block."""
        if self._configured.client is not None:
            return True
        return self.handshake is not None and not self.handshake.is_known(self._current)

    def ready(self, until: datetime) -> Credentials:
        """Return the current credentials, the same object while unchanged; may request a token before `until`.

        Raises TokenUnavailable if no token was obtained, HandshakeRefused if the target does not agree, and the other
        errors of `Handshake.require`.
        """
        credentials = self._with_token(until, refused="")
        if self.handshake is not None:
            self.handshake.require(credentials, (until - self._clock()).total_seconds())
        return credentials

    def check(self, until: datetime) -> None:
        """Obtain a token, and ask the target for its consent even if its answer is known. Raises as `ready` does."""
        credentials = self._with_token(until, refused="")
        if self.handshake is not None:
            self.handshake.check(credentials, (until - self._clock()).total_seconds())

    def renewed(self, until: datetime) -> Credentials:
        """Return fresh credentials after those of `ready` were refused; reads the connection again.

        Raises TokenUnavailable, and the errors of `read`.
        """
        fresh = self._read()
        same_client = fresh.client == self._configured.client
        if fresh != self._configured:
            self._configured = self._current = fresh
        return self._with_token(until, refused=self._token if same_client else "")

    def _with_token(self, until: datetime, *, refused: str) -> Credentials:
        client = self._configured.client
        if client is None:
            return self._current
        token = _TOKENS.token(client, lambda seconds: self._ask(client, seconds), self._clock(), until, refused)
        if token != self._token or self._current is self._configured:
            self._token = token
            self._current = self._configured.with_token(token)
        return self._current

    def _token_exchange(self, client: TokenClient, seconds: float) -> Exchange:
        try:
            return Exchange(routed(self._token_endpoint(client, seconds)))
        except (AddressRefused, HostUnknown) as error:
            raise TokenUnavailable(f"{client.origin} returned no token: {type(error).__name__}: {error}") from None

    def _ask(self, client: TokenClient, seconds: float) -> AccessToken:
        """Request a token, with the TLS settings and SSRF protection of the target. Raises TokenUnavailable."""
        with closing(self._token_exchange(client, seconds)) as exchange:
            exchange.started_at = self._clock()
            exchange.prepare(*client.request())
            reach("token.ask")
            response = exchange.perform()
            reach("token.responded")
            body = exchange.body
        if response.accepted:
            return read_token(client, body)
        where = client.place
        if response.code is None:
            raise TokenUnavailable(f"{where} returned no token: {response.error_class}: {response.error}")
        reason = why_refused(response.response_head, exchange.veiled)
        remedy = " Check the connection's login and password." if response.code in (400, 401, 403) else ""
        raise TokenUnavailable(
            f"{where} returned no token: HTTP {response.code}{f', {reason}' if reason else ''}.{remedy}"
        )
