"""The connections of the API server, limited so that callers that keep the server waiting do not block others."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: The maximum number of open connections; for a further one, the one on which the server has waited longest is closed.
MAX_CONNECTIONS: Final = 256
#: How long the head of a request, its request line and headers, may take to arrive.
HEAD_SECONDS: Final = 10.0
#: The maximum size of a head, and of trailers. One more read of the socket may be in memory as well.
MAX_HEAD_BYTES: Final = 64 * 1024


class Connection(HttpToolsProtocol):
    """A connection that is closed when a head takes too long, and when a new connection needs its place.

    At MAX_CONNECTIONS, a new connection takes the place of the one on which the server has waited longest: for a head,
    for more of a body, or until the caller reads the response. uvicorn itself waits for these without a limit.
    """

    #: The time at which the server last began to wait for the caller.
    _waits_since = 0.0
    _head_timer: asyncio.TimerHandle | None = None
    #: Received bytes since the last complete head and the last part of a body.
    _incomplete = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        self._make_room()
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; refuses a head that is too large."""
        self._incomplete += len(data)
        super().data_received(data)
        if self._incomplete > MAX_HEAD_BYTES:
            self.send_400_response(f"The head of the request has more than {MAX_HEAD_BYTES:,} bytes")
        elif self._head_timer is None and self._waits_for_head():
            # uvicorn ends its own timer of an idle connection at the first byte, even that of an empty line
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        """Start the call, and wait for its body."""
        self._stop_head_timer()
        self._incomplete = 0
        self._waits_since = self.loop.time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._incomplete = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait until the caller reads the response."""
        self._waits_since = self.loop.time()
        super().pause_writing()

    def _make_room(self) -> None:
        if len(self.connections) < MAX_CONNECTIONS:
            return
        waiting = [each for each in self.connections if isinstance(each, Connection) and each._waits()]
        if waiting:
            longest = min(waiting, key=lambda each: each._waits_since)
            self.connections.discard(longest)  # now, because it ends in a later pass of the event loop
            longest.transport.abort()  # not `close`, which would wait until the caller has read the response

    def _waits(self) -> bool:
        return self._waits_for_head() or self.cycle.more_body or self.flow.write_paused

    def _waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
