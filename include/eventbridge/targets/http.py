"""The HTTP target: POSTs deliveries with libcurl, many at once over kept-open connections, one thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import datetime

import pycurl

from eventbridge.delivery import Answer
from eventbridge.errors import EventBridgeError
from eventbridge.faults import reach
from eventbridge.targets.credentials import Credentials
from eventbridge.targets.exchange import Endpoint, Exchange
from eventbridge.targets.headers import HeaderRefused, event_lines, header_line
from eventbridge.targets.multi import Multi
from eventbridge.targets.protocol import Request
from eventbridge.targets.signing import Signer, traceparent

#: Longest sleep without a look at the clock.
_WAIT_SECONDS = 1.0


class HttpTarget:
    """Delivers to one URL, at most `max_in_flight` requests at a time; never follows a redirect.

    Requests carry `webhook-id` (the delivery id), `webhook-timestamp`, `webhook-signature` (with signing keys)
    and `traceparent`. After 401 or 407 `renew` is asked once per `deliver`; if it then answers other credentials,
    the request is sent once more.
    """

    flush_every = 1

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        max_in_flight: int,
        credentials: Credentials,
        renew: Callable[[], Credentials],
        clock: Callable[[], datetime],
    ) -> None:
        self._clock = clock
        self._ask_credentials = renew
        self._take_up(credentials)
        self._delivering = False
        self._may_ask = True
        self._multi = Multi(max_in_flight)
        self._endpoint = endpoint
        self._max_in_flight = max_in_flight
        self._idle: list[Exchange] = []  # made when first needed: a chunk may hold one delivery for this target
        self._flying: dict[pycurl.Curl, Exchange] = {}
        self._content_type = ("", header_line("content-type", ""))

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Answer], None, None]:
        """Send every request as `protocol.Target` says; an answer is an HTTP status, or the error in its place.

        Take the answers promptly: a time-out goes on while the caller holds one.
        """
        if self._delivering:
            raise RuntimeError("an HTTP target makes one delivery at a time: close the previous one first")
        self._delivering = self._may_ask = True
        waiting = iter(requests)
        try:
            while True:
                yield from self._fill(waiting, until)
                if not self._flying:
                    return
                left = (until - self._clock()).total_seconds()
                for curl, error_number, message in self._multi.ended(max(0.0, min(left, _WAIT_SECONDS))):
                    reach("target.answered")
                    done = self._finish(curl, error_number, message, until)
                    if done is not None:
                        yield done
                if left <= 0:
                    break
            while self._flying:
                yield self._give_up()
        finally:
            self._delivering = False
            while self._flying:
                self._give_up()

    def flush(self) -> None:
        """Return at once: an HTTP answer is the target's own word."""

    def close(self) -> None:
        """Close all connections."""
        self._multi.close()
        for exchange in self._idle:
            exchange.curl.close()
        self._idle.clear()

    def _fill(self, waiting: Iterator[Request], until: datetime) -> Iterator[tuple[int, Answer]]:
        """Send while there is time and room in flight; yields only what could not be sent."""
        while len(self._flying) < self._max_in_flight:
            now = self._clock()
            if now >= until:
                return
            request = next(waiting, None)
            if request is None:
                return
            try:
                self._send(request, now)
            except HeaderRefused as refusal:
                answer = Answer(False, now, 0.0, error_class="InvalidHeader", error=str(refusal))
                yield request.index, answer

    def _send(self, request: Request, now: datetime) -> None:
        lines = self._lines_of(request, now)
        exchange = self._idle.pop() if self._idle else Exchange(self._endpoint)
        exchange.prepare(lines, request.payload)
        exchange.request = request
        exchange.credentials = self._credentials
        exchange.started_at = now
        self._start(exchange)

    def _start(self, exchange: Exchange) -> None:
        reach("target.send")
        self._multi.start(exchange.curl)
        self._flying[exchange.curl] = exchange

    def _finish(self, curl: pycurl.Curl, error_number: int, message: str, until: datetime) -> tuple[int, Answer] | None:
        """Take an ended transfer out; None if it was sent once more with new credentials."""
        exchange = self._flying.pop(curl)
        self._multi.remove(curl)
        request = exchange.request
        assert request is not None
        answer = exchange.answer(error_number, message)
        if answer.code in (401, 407) and self._renewed(exchange) and self._clock() < until:
            exchange.credentials = self._credentials
            exchange.prepare(self._lines_of(request, self._clock()), request.payload)
            self._start(exchange)
            return None
        self._free(exchange)
        return request.index, answer

    def _give_up(self) -> tuple[int, Answer]:
        curl, exchange = self._flying.popitem()
        self._multi.remove(curl)
        answer = exchange.interrupted(self._clock())
        assert exchange.request is not None
        index = exchange.request.index
        self._free(exchange)
        return index, answer

    def _free(self, exchange: Exchange) -> None:
        exchange.forget()
        self._idle.append(exchange)

    def _renewed(self, exchange: Exchange) -> bool:
        """Return whether there are other credentials than those it was sent with, asking once per `deliver`."""
        if self._may_ask and exchange.credentials == self._credentials:
            self._may_ask = False
            try:
                fresh = self._ask_credentials()
            except EventBridgeError:  # the connection is gone or broken: what there was stays, and 401 is the answer
                return False
            if fresh != self._credentials:
                self._take_up(fresh)
        return exchange.credentials != self._credentials

    def _take_up(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._signer = Signer(credentials.signing_keys) if credentials.signing_keys else None
        # libcurl would wait for "100 Continue" before large bodies
        self._own_lines: list[str | bytes] = ["Expect:"]
        if credentials.authorization is not None:
            self._own_lines.append(f"authorization: {credentials.authorization}")

    def _lines_of(self, request: Request, now: datetime) -> list[str | bytes]:
        timestamp = str(int(now.timestamp()))
        lines = [
            f"webhook-id: {request.delivery_id}",
            f"webhook-timestamp: {timestamp}",
            self._content_type_line(request.content_type),
            f"traceparent: {traceparent(request.delivery_id, request.headers)}",
            *self._own_lines,
        ]
        if self._signer is not None:
            lines.append(f"webhook-signature: {self._signer.sign(request.delivery_id, timestamp, request.payload)}")
        if request.headers:
            lines += event_lines(request.headers)
        return lines

    def _content_type_line(self, content_type: str) -> str | bytes:
        known, line = self._content_type
        if content_type != known:
            line = header_line("content-type", content_type)
            self._content_type = (content_type, line)
        return line
