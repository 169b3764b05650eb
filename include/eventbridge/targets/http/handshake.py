"""Asks a target whether it agrees to get requests: the handshake of CloudEvents HTTP 1.1 Web Hooks, section 4."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Final

import pycurl

from eventbridge.targets.http.credentials import Credentials
from eventbridge.targets.http.egress import AddressRefused, HostUnknown, routed
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.exchange import Exchange

#: How many seconds an agreement is valid in a process, and after how many a refused target is asked again.
_AGREED_SECONDS: Final = 3_600.0
_REFUSED_SECONDS: Final = 30.0
_MAX_KNOWN: Final = 10_000


class HandshakeRefused(Exception):
    """The target does not agree to get requests; the message says why, and what to do."""


@dataclass(frozen=True)
class Handshake:
    """The handshake of one target: who asks, and the rate of the rule (None if it has none)."""

    endpoint: Endpoint
    origin: str
    rate_per_second: float | None

    def require(self, credentials: Credentials, seconds: float) -> None:
        """Ask the target, unless this process did so lately; raises HandshakeRefused."""
        key = (self.endpoint.url, self.origin, self.rate_per_second, credentials)
        known = _known.get(key)
        if known is None or known[0] <= time.monotonic():
            refusal = self.ask(credentials, seconds)
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            lasts = _AGREED_SECONDS if refusal is None else _REFUSED_SECONDS
            known = _known[key] = (time.monotonic() + lasts, refusal)
        if known[1] is not None:
            raise HandshakeRefused(known[1])

    def ask(self, credentials: Credentials, seconds: float) -> str | None:
        """Send the OPTIONS request and return why the target does not agree, None if it does."""
        timeout = max(0.1, min(seconds, self.endpoint.timeout_seconds))
        try:
            endpoint = routed(self.endpoint)
        except (AddressRefused, HostUnknown) as error:
            return f"no response to the handshake: {type(error).__name__}: {error}"
        exchange = Exchange(replace(endpoint, method="OPTIONS", timeout_seconds=timeout))
        exchange.use(credentials)
        lines = ["Expect:", "content-type:", *self.endpoint.lines, *credentials.lines]
        lines.append(f"webhook-request-origin: {self.origin}")
        if self._requests_a_minute is not None:
            lines.append(f"webhook-request-rate: {self._requests_a_minute}")
        exchange.prepare(lines, b"")
        number, message = 0, ""
        try:
            exchange.curl.perform()
        except pycurl.error as error:
            number, message = error.args
        response = exchange.response(number, message)
        origins, rate = exchange.header("webhook-allowed-origin"), exchange.header("webhook-allowed-rate")
        exchange.close()
        if response.code is None:
            return f"no response to the handshake: {response.error_class}: {response.error}"
        if not response.accepted:
            return f"the target responded to the handshake with HTTP {response.code}. {self._remedy}"
        return self._origin_refusal(origins) or self._rate_refusal(rate)

    @property
    def _requests_a_minute(self) -> int | None:
        return None if self.rate_per_second is None else max(1, math.ceil(self.rate_per_second * 60))

    @property
    def _remedy(self) -> str:
        return f"Allow the origin {self.origin} there, or remove handshake if the target does not know it."

    def _origin_refusal(self, allowed: str | None) -> str | None:
        if allowed is None:
            return f"the target's response to the handshake has no WebHook-Allowed-Origin. {self._remedy}"
        if self.origin.lower() in {each.strip().lower() for each in allowed.split(",")} or allowed.strip() == "*":
            return None
        return f"the target does not allow the origin {self.origin} (WebHook-Allowed-Origin). {self._remedy}"

    def _rate_refusal(self, allowed: str | None) -> str | None:
        """Return why the rule may send faster than the target allows, which counts requests a minute."""
        if allowed is None or allowed.strip() == "*":
            return None
        text = allowed.strip()
        if not (text.isascii() and text.isdigit() and int(text[:10]) > 0):
            return "the target's WebHook-Allowed-Rate is neither * nor a number of requests a minute. Correct it there."
        if self.rate_per_second is not None and self.rate_per_second * 60 <= int(text[:10]):
            return None
        return f"the target allows {text[:10]} requests a minute. Write rate: {text[:10]}/m, or less."


_known: dict[tuple[str, str, float | None, Credentials], tuple[float, str | None]] = {}
