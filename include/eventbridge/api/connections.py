"""Limits the connections of the API server, so that callers that keep the server waiting do not block others."""

from __future__ import annotations

import asyncio
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
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


class _Refused(Exception):
    """The caller sends what a connection does not accept; the message says what. The parser stops at this exception."""


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

    The header Upgrade is ignored (RFC 9110, 7.8): the server speaks no other protocol, and the call has a body as any
    other. Trailers are discarded.
    """

    flow: _Flow
    #: The time at which the server last began to wait for the caller.
    _waits_since = 0.0
    _head_timer: asyncio.TimerHandle | None = None
    #: The number of bytes received since the last complete head or the last part of a body, whichever is later.
    _incomplete = 0
    #: Whether the head of the current call is complete: further headers are trailers.
    _is_head_complete = False
    #: The number of trailers of the current call.
    _trailers = 0
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
        self._feed(data)
        if self._incomplete > MAX_HEAD_BYTES:
            self._refusal = (
                f"The request line and headers have more than {MAX_HEAD_BYTES:,} bytes. Send shorter headers"
            )
            self.send_400_response(self._refusal)
        elif self._head_timer is None and self._waits_for_head():
            # uvicorn ends its own timer of an idle connection at the first byte, even if it is the first byte of an
            # empty line
            self._start_head_timer()

    def _feed(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as stopped:
            # The parser takes what follows the head for another protocol, or later for a call. A new parser reads the
            # head again, and then the body.
            head = self._head_without_upgrade()
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self._feed(head + data[stopped.args[0] :])
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _head_without_upgrade(self) -> bytes:
        request_line = b"%s %s HTTP/%s" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode(),
        )
        headers = (b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade")
        return b"\r\n".join((request_line, *headers, b"", b""))

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

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self._is_head_complete = False
        self._trailers = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, or discard a trailer. Raises _Refused if there are too many of both."""
        if self._is_head_complete:
            self._trailers += 1
        else:
            super().on_header(name, value)
        if len(self.headers) + self._trailers > MAX_HEADERS:
            self._refusal = f"The request has more than {MAX_HEADERS} headers. Send fewer"
            raise _Refused(self._refusal)

    def on_headers_complete(self) -> None:
        """Start the call, and begin to wait for its body. Raises _Refused for a call that the server never serves."""
        self._is_head_complete = True
        if self.parser.get_method() == b"CONNECT":  # what follows it is no body, and must not be read as a call
            self._refusal = "The server is not a proxy, and serves no CONNECT. Send the call to its URL"
            raise _Refused(self._refusal)
        if self.parser.should_upgrade():
            return  # `_feed` reads the head again
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _Refused(f"More than {MAX_PIPELINED} calls are waiting for the one in progress. Wait for responses")
        self._stop_head_timer()
        self._incomplete = 0
        self._waits_since = self.loop.time()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the body."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

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
