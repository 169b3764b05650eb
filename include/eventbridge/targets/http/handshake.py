"""Asks a target whether it agrees to get requests: the handshake of CloudEvents HTTP 1.1 Web Hooks, section 4."""

from __future__ import annotations

import math
import re
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from eventbridge.targets.http.credentials import Credentials
from eventbridge.targets.http.egress import AddressRefused, HostUnknown, routed
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.exchange import Exchange

#: The number of seconds for which an agreement is valid in a process, and after which a refused target is asked again.
#: An agreement whose renewal got no response is valid as long as a refusal.
_AGREED_SECONDS: Final = 3_600.0
_REFUSED_SECONDS: Final = 30.0
_MAX_KNOWN: Final = 10_000
#: A handshake that the time left cuts off ends this many seconds later, when no delivery of the push can fail any more.
_LATE_SECONDS: Final = 0.01
_ALLOWED_RATE: Final = re.compile("[1-9][0-9]{0,8}", re.ASCII)


class HandshakeRefused(Exception):
    """The target does not agree to get requests; the message says why, and what to do."""


class HandshakeUnanswered(Exception):
    """The target did not respond to the handshake, so its consent is unknown; `error_class` says why."""

    def __init__(self, error_class: str, problem: str) -> None:
        super().__init__(f"no response to the handshake: {problem}")
        self.error_class = error_class


_NO_RESPONSE = (HandshakeUnanswered, AddressRefused, HostUnknown)


@dataclass(eq=False)
class _Answer:
    """The last answer of a target, and the number of times that it did not respond; one thread at a time asks, with the
    lock held."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    given: bool = False
    refusal: str | None = None
    good_until: float = -math.inf
    failures: int = 0
    failure: Exception | None = None

    @property
    def is_current(self) -> bool:
        return time.monotonic() < self.good_until

    def take(self, refusal: str | None) -> None:
        self.given, self.refusal = True, refusal
        self.good_until = time.monotonic() + (_AGREED_SECONDS if refusal is None else _REFUSED_SECONDS)


@dataclass(frozen=True)
class Handshake:
    """The handshake of one target: who asks, and the rate in force (None if there is none)."""

    endpoint: Endpoint
    origin: str
    rate_per_second: float | None

    def is_known(self, credentials: Credentials) -> bool:
        """Return whether this process knows the target's answer, so that `require` sends nothing."""
        answer = _answers.get(self._key(credentials))
        return answer is not None and answer.is_current

    def require(self, credentials: Credentials, seconds: float) -> None:
        """Ask the target, unless this process did so lately.

        Raises HandshakeRefused. Raises HandshakeUnanswered, AddressRefused or HostUnknown without a response, unless
        the target agreed before. Such a failure is not remembered, but threads that waited for the same handshake share
        it.
        """
        answer = self._answer(credentials)
        if not answer.is_current:
            self._renew(answer, credentials, seconds)
        if answer.refusal is not None:
            raise HandshakeRefused(answer.refusal)

    def check(self, credentials: Credentials, seconds: float) -> None:
        """Ask the target in any case, and remember its answer. Raises the errors of `require`."""
        refusal = self.ask(credentials, seconds)
        self._answer(credentials).take(refusal)
        if refusal is not None:
            raise HandshakeRefused(refusal)

    def ask(self, credentials: Credentials, seconds: float) -> str | None:
        """Send the OPTIONS request and return why the target does not agree, None if it does.

        Raises HandshakeUnanswered, AddressRefused and HostUnknown.
        """
        timeout = min(max(0.0, seconds) + _LATE_SECONDS, self.endpoint.timeout_seconds)
        endpoint = replace(routed(self.endpoint), method="OPTIONS", timeout_seconds=timeout)
        with closing(Exchange(endpoint)) as exchange:
            exchange.use(credentials)
            lines = ["Expect:", "content-type:", *self.endpoint.lines, *credentials.lines]
            lines.append(f"webhook-request-origin: {self.origin}")
            if self._requests_a_minute is not None:
                lines.append(f"webhook-request-rate: {self._requests_a_minute}")
            exchange.prepare(lines, b"")
            response = exchange.perform()
            origins, rate = exchange.header("webhook-allowed-origin"), exchange.header("webhook-allowed-rate")
        if response.code is None:
            raise HandshakeUnanswered(response.error_class or "NetworkError", response.error or "")
        if not response.accepted:
            return f"the target responded to the handshake with HTTP {response.code}. {self._remedy}"
        return self._origin_refusal(origins) or self._rate_refusal(rate)

    def _renew(self, answer: _Answer, credentials: Credentials, seconds: float) -> None:
        began, failures = time.monotonic(), answer.failures
        if not answer.lock.acquire(timeout=max(0.0, seconds)):
            raise HandshakeUnanswered("Timeout", "no time was left, because an earlier handshake took too long")
        try:
            if answer.is_current:
                return
            if answer.failure is not None and answer.failures != failures:
                raise answer.failure
            left = seconds - (time.monotonic() - began)
            try:
                answer.take(self.ask(credentials, left))
            except _NO_RESPONSE as error:
                if answer.given and answer.refusal is None:
                    answer.good_until = time.monotonic() + _REFUSED_SECONDS
                    return
                if left >= self.endpoint.timeout_seconds:  # otherwise other threads may have more time
                    answer.failures += 1
                    answer.failure = error
                raise
        finally:
            answer.lock.release()

    def _key(self, credentials: Credentials) -> _Key:
        return self.endpoint.url, self.origin, self.rate_per_second, credentials

    def _answer(self, credentials: Credentials) -> _Answer:
        with _answers_lock:
            if len(_answers) >= _MAX_KNOWN:
                _answers.clear()
            return _answers.setdefault(self._key(credentials), _Answer())

    @property
    def _requests_a_minute(self) -> int | None:
        return None if self.rate_per_second is None else max(1, math.ceil(self.rate_per_second * 60))

    @property
    def _remedy(self) -> str:
        return f"Allow the origin {self.origin} at the target, or remove handshake if the target does not support it."

    def _origin_refusal(self, allowed: str | None) -> str | None:
        if allowed is None:
            return f"the target's response to the handshake has no WebHook-Allowed-Origin. {self._remedy}"
        if self.origin.lower() in {each.strip().lower() for each in allowed.split(",")} or allowed.strip() == "*":
            return None
        return f"the target does not allow the origin {self.origin} (WebHook-Allowed-Origin). {self._remedy}"

    def _rate_refusal(self, allowed: str | None) -> str | None:
        """Return why the rule may send faster than the target allows. The target counts requests per minute."""
        if allowed is None or allowed.strip() == "*":
            return None
        text = allowed.strip()
        if not _ALLOWED_RATE.fullmatch(text):
            what = "the target's WebHook-Allowed-Rate is neither * nor a number of requests per minute"
            return f"{what}. Correct it at the target."
        if self.rate_per_second is not None and self.rate_per_second * 60 <= int(text):
            return None
        asked = self._requests_a_minute
        in_force = "" if asked is None else f", and {asked} requests a minute are in force"
        return (
            f"the target allows {text} requests a minute{in_force}. Write rate: {text}/m, or less, in the rule file, "
            f"or override the rate: eventbridge targets rate RULE/TARGET {text}/m."
        )


_Key = tuple[str, str, float | None, Credentials]
_answers: dict[_Key, _Answer] = {}
_answers_lock = threading.Lock()
