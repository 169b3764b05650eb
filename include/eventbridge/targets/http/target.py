"""Implements the HTTP target, which sends many deliveries concurrently with libcurl over keep-alive connections."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial

import pycurl

from eventbridge.errors import EventBridgeError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.processes import is_cancelled
from eventbridge.targets.http.access import Access
from eventbridge.targets.http.credentials import NO_CREDENTIALS, Credentials
from eventbridge.targets.http.egress import AddressRefused, HostUnknown, is_routed, routed
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.engine import HttpEngine, TransferSlot
from eventbridge.targets.http.exchange import Exchange
from eventbridge.targets.http.handshake import HandshakeRefused, HandshakeUnanswered
from eventbridge.targets.http.headers import HeaderRefused, event_lines, header_line, traceparent
from eventbridge.targets.http.tokens import TokenUnavailable
from eventbridge.targets.protocol import Request
from eventbridge.targets.steps import BlockingCall, Step

#: The maximum time to wait before the clock is checked.
_WAIT_SECONDS = 1.0
#: The minimum time between two renewals of credentials in one `deliver`, which may last as long as a push.
_MIN_RENEWAL_INTERVAL = timedelta(seconds=5)
_NO_MORE = object()
#: The errors because of which nothing is sent; `_class_of` returns the error classes of the deliveries.
_NOT_READY = (TokenUnavailable, HandshakeRefused, HandshakeUnanswered, AddressRefused, HostUnknown)
#: zlib's number for a gzip header, in which it writes no name and no time.
_GZIP = 16 + zlib.MAX_WBITS
#: Larger payloads are compressed at the fastest level, because the thread also polls for other responses.
_LARGE_BYTES = 64 * 1024
_FAST = 1


def compress(payload: bytes) -> bytes | None:
    """Return a payload in gzip format, the same bytes each time; None if that is not smaller."""
    level = _FAST if len(payload) > _LARGE_BYTES else zlib.Z_DEFAULT_COMPRESSION
    compressed = zlib.compress(payload, level, wbits=_GZIP)
    return compressed if len(compressed) < len(payload) else None


def _class_of(failure: Exception) -> str:
    return failure.error_class if isinstance(failure, HandshakeUnanswered) else type(failure).__name__


class HttpTarget:
    """Delivers to one URL, at most `max_in_flight` requests at a time; never follows a redirect.

    Requests carry `webhook-id` (the delivery id), `webhook-timestamp`, `webhook-signature` (with signing keys), with
    the endpoint's prefix instead of `webhook`, and `traceparent`. The payload is signed before it is compressed,
    because receivers verify what their HTTP server has decompressed. After a response of 401 or 407, no request is
    started until all requests in flight have ended. Then the credentials are renewed, at most every few seconds; if
    they changed, refused requests are sent once more.
    """

    flush_every = 1
    more_of_response = 0

    def __init__(
        self, endpoint: Endpoint, *, max_in_flight: int, access: Access, clock: Callable[[], datetime]
    ) -> None:
        self._clock = clock
        self._access = access
        self._endpoint = endpoint
        self._take_up(NO_CREDENTIALS)
        self._delivering = False
        self._renewed_at: datetime | None = None  # in the current `deliver`
        self._sent_again: set[int] = set()  # indexes of requests sent again with renewed credentials
        self._max_in_flight = max_in_flight
        self._engine: HttpEngine | None = None  # the engine of `deliver`
        self._slot: TransferSlot | None = None
        self._held_back = False  # whether there are more requests, which must wait
        self._refused: list[tuple[Request, Response]] = []  # after 401 or 407, until the credentials are renewed
        self._content_type: tuple[str, str | bytes] = ("", "content-type:")

    def deliver(
        self, requests: Iterable[Request | None], until: datetime
    ) -> Generator[tuple[int, Response], None, None]:
        """Send every request, see `protocol.Target`; a response is an HTTP status or an error.

        Consume the responses promptly, because nothing is sent or received while the caller processes one.
        """
        if self._engine is None:
            self._engine = HttpEngine(self._max_in_flight)
            self._slot = TransferSlot(self._engine)
        assert self._slot is not None, "the engine is created first"
        with closing(self.steps(requests, until, self._slot)) as steps:
            for step in steps:
                if isinstance(step, BlockingCall):
                    step.run()
                elif step is not None:
                    yield step
                else:
                    left = (until - self._clock()).total_seconds()
                    self._engine.wait(max(0.0, min(left, _WAIT_SECONDS)))

    def steps(
        self, requests: Iterable[Request | None], until: datetime, slot: TransferSlot
    ) -> Generator[Step, None, None]:
        """Deliver like `deliver`, see `steps.MultiplexedTarget`."""
        if self._delivering:
            raise RuntimeError("an HTTP target runs one `deliver` at a time: close the previous one first")
        self._delivering, self._renewed_at = True, None
        waiting = iter(requests)
        try:
            failure = (yield from self._make_ready(until)) if requests else None
            if failure is not None:
                yield from self._unsent(waiting, failure, until)
                return
            while True:
                yield from self._fill(waiting, until, slot)
                if not slot.flying and self._refused:
                    yield from self._send_again(until, slot)
                    continue
                if not (slot.flying or self._held_back):
                    return
                yield None
                yield from self._handle_ended(slot)
                if self._clock() >= until:
                    break
            while slot.flying:
                yield self._give_up(slot)
            yield from self._refused_responses()
        finally:
            self._delivering = False
            self._refused.clear()
            self._sent_again.clear()
            while slot.flying:
                self._give_up(slot)
            slot.leave()

    def _handle_ended(self, slot: TransferSlot) -> Iterator[Step]:
        while slot.ended:
            reach("target.responded")
            done = self._finish(slot, *slot.ended.popleft())
            if done is not None:
                yield done

    def flush(self) -> None:
        """Return immediately, because an HTTP response is already final."""

    def check(self) -> str | None:
        """Return why a connection (with TLS) or a token cannot be obtained, or None.

        Sends no request to the target, except for its handshake.
        """
        try:
            self._access.check(self._clock() + timedelta(seconds=self._endpoint.timeout_seconds))
            endpoint = routed(self._endpoint)
        except _NOT_READY as error:
            return f"{_class_of(error)}: {error}"
        with closing(Exchange(endpoint)) as exchange:
            exchange.curl.setopt(pycurl.CONNECT_ONLY, 1)
            exchange.curl.setopt(pycurl.NOPROGRESS, 0)
            exchange.curl.setopt(pycurl.XFERINFOFUNCTION, lambda *_: int(is_cancelled()))  # about once a second
            response = exchange.perform()
        return None if response.error_class is None else f"{response.error_class}: {response.error}"

    def close(self) -> None:
        """Close the connections of `deliver`."""
        if self._engine is not None:
            self._engine.close()
            self._engine = self._slot = None

    def _make_ready(self, until: datetime) -> Generator[Step, None, Exception | None]:
        """Set the current credentials; return the error if they are unavailable or the target refuses requests."""
        ready = BlockingCall(partial(self._access.ready, until))
        if self._access.can_block:
            yield ready
        else:
            ready.run()
        try:
            self._take_up(ready.result())
            if is_routed(self._endpoint):
                self._endpoint = routed(self._endpoint)
            else:
                routing = BlockingCall(partial(routed, self._endpoint))
                yield routing
                self._endpoint = routing.result()
        except _NOT_READY as error:
            return error
        return None

    def _unsent(self, waiting: Iterator[Request | None], failure: Exception, until: datetime) -> Iterator[Step]:
        """Yield a failure for each request, because requesting a token again for each would flood the endpoint."""
        for request in waiting:
            now = self._clock()
            if now >= until:
                return
            if request is None:
                yield None
                continue
            yield request.index, Response(False, now, 0.0, error_class=_class_of(failure), error=str(failure))

    def _fill(
        self, waiting: Iterator[Request | None], until: datetime, slot: TransferSlot
    ) -> Iterator[tuple[int, Response]]:
        """Send while there is time and capacity; yields only failures to send."""
        self._held_back = False
        while len(slot.flying) < self._max_in_flight and not self._refused:
            now = self._clock()
            if now >= until:
                return
            request = next(waiting, _NO_MORE) if slot.has_room else None
            if request is _NO_MORE:
                return
            if request is None:
                self._held_back = True
                return
            assert isinstance(request, Request), "there is nothing else"
            try:
                self._send(request, now, slot)
            except HeaderRefused as refusal:
                response = Response(False, now, 0.0, error_class="InvalidHeader", error=str(refusal))
                yield request.index, response

    def _send(self, request: Request, now: datetime, slot: TransferSlot) -> None:
        lines = self._lines_of(request, now)
        exchange = slot.exchange(self._endpoint)
        if exchange.credentials is not self._credentials:
            exchange.use(self._credentials)
        payload = request.payload
        if self._endpoint.compresses and (compressed := compress(payload)) is not None:
            lines.append("content-encoding: gzip")
            payload = compressed
        exchange.prepare(lines, payload)
        exchange.request = request
        exchange.started_at = now
        reach("target.send")
        slot.start(exchange)

    def _finish(
        self, slot: TransferSlot, curl: pycurl.Curl, error_number: int, message: str
    ) -> tuple[int, Response] | None:
        """Remove an ended transfer and return its response; None if it was refused and new credentials may help."""
        exchange = slot.take_out(curl)
        request = exchange.request
        assert request is not None
        response = self._read_response(exchange, request, error_number, message)
        if stalled_ms := slot.stalled_ms(exchange):
            response = response._replace(stalled_ms=stalled_ms)
        slot.free(exchange)
        sent_again = request.index in self._sent_again
        self._sent_again.discard(request.index)
        if response.code in (401, 407) and not sent_again and self._can_renew:
            self._refused.append((request, response))
            return None
        return request.index, response

    def _read_response(self, exchange: Exchange, _request: Request, error_number: int, message: str) -> Response:
        """Return the response of an ended transfer."""
        return exchange.response(error_number, message)

    def _send_again(self, until: datetime, slot: TransferSlot) -> Iterator[Step]:
        """Send refused requests once more, with the same concurrency, if the credentials changed.

        No request is in flight now, so reading credentials may block without using up a request's timeout.
        """
        before, problem = self._credentials, None
        renewed = BlockingCall(partial(self._access.renewed, until))
        yield renewed
        try:
            self._take_up(renewed.result())
        except TokenUnavailable as error:
            problem = str(error)
        except (
            EventBridgeError
        ):  # if the connection is missing or unusable, the old credentials stay, and the response is 401 or 407
            pass
        self._renewed_at = self._clock()
        refused, self._refused = self._refused, []
        for request, response in refused:
            now = self._clock()
            if self._credentials == before or now >= until:
                yield request.index, response if problem is None else response._replace(error=problem)
            else:
                self._sent_again.add(request.index)
                self._send(request, now, slot)

    @property
    def _can_renew(self) -> bool:
        """Return whether the last renewal of credentials was long enough ago."""
        return self._renewed_at is None or self._clock() - self._renewed_at >= _MIN_RENEWAL_INTERVAL

    def _give_up(self, slot: TransferSlot) -> tuple[int, Response]:
        exchange = slot.take_out(next(reversed(slot.flying)))
        response = exchange.interrupted(self._clock())._replace(stalled_ms=slot.stalled_ms(exchange))
        assert exchange.request is not None
        index = exchange.request.index
        slot.free(exchange)
        return index, response

    def _refused_responses(self) -> Iterator[tuple[int, Response]]:
        while self._refused:
            request, response = self._refused.pop()
            yield request.index, response

    def _take_up(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._signer = credentials.signer
        # without an empty "Expect:", libcurl would wait for "100 Continue" before large bodies
        self._own_lines: list[str | bytes] = ["Expect:", *self._endpoint.lines, *credentials.lines]

    def _lines_of(self, request: Request, now: datetime) -> list[str | bytes]:
        timestamp, prefix = str(int(now.timestamp())), self._endpoint.prefix
        lines = [
            f"{prefix}-id: {request.delivery_id}",
            f"{prefix}-timestamp: {timestamp}",
            self._content_type_line(request.content_type),
            f"traceparent: {traceparent(request.delivery_id, request.headers)}",
            *self._own_lines,
        ]
        if self._signer is not None:
            lines.append(f"{prefix}-signature: {self._signer.sign(request.delivery_id, timestamp, request.payload)}")
        if request.headers:
            lines += event_lines(request.headers)
        return lines

    def _content_type_line(self, content_type: str) -> str | bytes:
        known, line = self._content_type
        if content_type != known:
            # an empty "content-type:" removes the one that libcurl would send
            line = header_line("content-type", content_type) if content_type else "content-type:"
            self._content_type = (content_type, line)
        return line
