"""Provides in-memory targets for delivery tests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from eventbridge.errors import InfrastructureError
from eventbridge.fault_points import reach
from eventbridge.model.outcome import Response
from eventbridge.targets.protocol import Request


def _now() -> datetime:
    return datetime.now(UTC)


def accept(request: Request) -> Response:
    """Respond with 200."""
    return Response(accepted=True, started_at=datetime.min.replace(tzinfo=UTC), duration_ms=0.0, code=200)


class InMemoryTarget:
    """Keeps requests in `received`; `response` returns the response to each request (default: 200).

    If `response` returns None, the request is sent but gets no response. An item of a batch request, for example, gets
    none if another item was rejected. `durable` is the number of flushed requests. While `flush_error` is set, `flush`
    raises InfrastructureError with it.
    """

    flush_every = 2
    more_of_response = 0

    def __init__(
        self, response: Callable[[Request], Response | None] = accept, *, clock: Callable[[], datetime] = _now
    ) -> None:
        self._response = response
        self._clock = clock
        self.received: list[Request] = []
        self.durable = 0
        self.flush_error: str | None = None
        self.closed = False

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Respond to one request after another; nothing is ever in flight."""
        for request in requests:
            now = self._clock()
            if now >= until:
                return
            reach("target.send")
            self.received.append(request)
            response = self._response(request)
            reach("target.responded")
            if response is not None:
                yield request.index, response._replace(started_at=now)

    def flush(self) -> None:
        """Count all received requests as durable, or raise `flush_error`."""
        if self.flush_error is not None:
            raise InfrastructureError(self.flush_error)
        self.durable = len(self.received)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


class InMemoryBlockTarget(InMemoryTarget):
    """Also takes blocks, in parts of `block_payloads` payloads; the response to the first payload applies to the whole
    part."""

    block_payloads = 10

    def deliver_block(
        self, delivery_ids: pa.Array, payloads: pa.Array, until: datetime
    ) -> Generator[tuple[int, Response], None, None]:
        """Respond to one part after another; a part that is not accepted is not kept."""
        for start in range(0, len(payloads), self.block_payloads):
            now = self._clock()
            if now >= until:
                return
            block = payloads.slice(start, self.block_payloads).to_pylist()
            requests = [Request(start + n, "", payload or b"", "") for n, payload in enumerate(block)]
            reach("target.send")
            response = (self._response(requests[0]) or accept(requests[0]))._replace(started_at=now)
            self.received += requests if response.accepted else []
            reach("target.responded")
            yield start + len(block), response
