"""Limits the connections of the API server, so that callers that keep the server waiting do not block others."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: The maximum number of open connections. A further one replaces the one on which the server has waited longest.
MAX_CONNECTIONS: Final = 256
#: The maximum time that the head of a request, its request line and headers, may take to arrive.
HEAD_SECONDS: Final = 10.0
#: The maximum size of a head, and of trailers. One more read of the socket may be in memory as well.
MAX_HEAD_BYTES: Final = 64 * 1024
#: The maximum number of headers, trailers included; it is limited because the framework searches all of them for one.
MAX_HEADERS: Final = 256
#: The maximum number of calls on one connection that wait for the call in progress. Each takes memory, and uvicorn sets
#: no limit.
MAX_PIPELINED: Final = 16
#: The number of bytes from one connection that are parsed before other connections get their turn. If the bytes form
#: tiny chunks, parsing them takes a few milliseconds.
_PARSED_BYTES: Final = 16 * 1024


class _TooMuch(Exception):
    """The caller sends more than a connection accepts; the message says what. The parser stops at this exception."""


class _Flow(FlowControl):
    """The flow control of a connection; it does not resume reading while received bytes wait to be parsed."""

    is_held = False

    def hold(self) -> None:
        """Stop reading until `release`."""
        self.is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Resume reading."""
        self.is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless `hold` stopped it."""
        if not self.is_held:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """A connection that is closed when a head takes too long, and when a new connection needs its place.

    At MAX_CONNECTIONS, a new connection takes the place of the one on which the server has waited longest: for a head,
    for more of a body, or until the caller reads the response. uvicorn itself waits for these without a limit. Nor does
    uvicorn limit the number of headers, or the number of calls that wait for the call in progress.
    """

    flow: _Flow
    #: The time at which the server last began to wait for the caller.
    _waits_since = 0.0
    _head_timer: asyncio.TimerHandle | None = None
    #: The number of bytes received since the last complete head or the last part of a body, whichever is later.
    _incomplete = 0
    #: Received bytes that wait for the next pass of the event loop.
    _unparsed = b""
    #: The reason why the caller is refused.
    _refusal = ""
    #: Whether the connection ends after the responses to calls in progress; nothing more is read.
    _is_ending = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        self._make_room()
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._waits_since = self.loop.time()
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._unparsed = b""
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, in pieces between which other connections get their turn."""
        if self._unparsed:
            self._unparsed += data
            return
        self._unparsed = data
        self._parse_piece()

    def _parse_piece(self) -> None:
        piece, self._unparsed = self._unparsed[:_PARSED_BYTES], self._unparsed[_PARSED_BYTES:]
        if piece and not self._is_ending and not self.transport.is_closing():
            self._parse(piece)
        if self._unparsed:
            self.flow.hold()
            self.loop.call_soon(self._parse_piece)
        elif self.flow.is_held:
            self.flow.release()

    def _parse(self, data: bytes) -> None:
        self._incomplete += len(data)
        super().data_received(data)
        if self._incomplete > MAX_HEAD_BYTES:
            self._refusal = (
                f"The request line and headers have more than {MAX_HEAD_BYTES:,} bytes. Send shorter headers"
            )
            self.send_400_response(self._refusal)
        elif self._head_timer is None and self._waits_for_head():
            # uvicorn ends its own timer of an idle connection at the first byte, even if it is the first byte of an
            # empty line
            self._start_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that cannot be parsed or exceeds a limit; calls before it still get their response."""
        if self.transport.is_closing():
            return
        if self._waits_for_head() or (self.cycle.more_body and not self.pipeline and not self.cycle.response_started):
            super().send_400_response(self._refusal or msg)
        elif self.cycle.more_body:
            self.transport.close()
        else:
            self._is_ending = True
            self.cycle.keep_alive = False  # the response to the last call before it ends the connection

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header or a trailer. Raises _TooMuch if there are too many."""
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refusal = f"The request has more than {MAX_HEADERS} headers. Send fewer"
            raise _TooMuch(self._refusal)

    def on_headers_complete(self) -> None:
        """Start the call, and begin to wait for its body."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _TooMuch(f"More than {MAX_PIPELINED} calls are waiting for the one in progress. Wait for responses")
        self._stop_head_timer()
        self._incomplete = 0
        self._waits_since = self.loop.time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._incomplete = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Begin to wait for the next head."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to wait until the caller reads the response."""
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
