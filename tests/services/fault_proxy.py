"""A proxy for an HTTP server that injects faults: it drops, delays, truncates, and responds with 500 and 503.

It works on the bytes of the connection, so that the client sees what it would see of a bad network.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Self

from demo.s3_server import connection_uri

DELAY_SECONDS: Final = 0.5

_MAX_HEAD_BYTES: Final = 1 << 20
_ERROR: Final = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>The proxy says so.</Message></Error>'
_CODES: Final = {"500 Internal Server Error": "InternalError", "503 Slow Down": "SlowDown"}


class Fault(Enum):
    """The fault of one request or response."""

    DROP_REQUEST = "the connection ends before the server sees the request"
    HALF_REQUEST = "the server gets half of the request, and the connection ends"
    DROP_RESPONSE = "the server does it, and the connection ends without a response"
    HALF_RESPONSE = "the connection ends in the middle of the response"
    DELAY = "the response comes late"
    ERROR_500 = "500 Internal Server Error"
    SLOW_DOWN = "503 Slow Down"


@dataclass(frozen=True)
class _Message:
    """A request or a response as it is sent."""

    head: bytes
    body: bytes

    @property
    def first_line(self) -> list[str]:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)

    @property
    def half(self) -> bytes:
        whole = self.head + self.body
        return whole[: len(self.head) + len(self.body) // 2] if self.body else whole[: len(whole) // 2]


class FaultProxy:
    """Forwards requests to a port of 127.0.0.1 while the context is open; `fault` returns the fault of each.

    `fault` is asked with the method of each request. `met` counts the requests that were disturbed, `seen` all.
    """

    def __init__(self, port: int) -> None:
        self.fault: Callable[[str], Fault | None] = lambda method: None
        self.seen = 0
        self.met = 0
        self.port = 0
        self._upstream = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._server: asyncio.Server | None = None

    @property
    def connection(self) -> str:
        """The URI of a connection to S3 through the proxy."""
        return connection_uri(self.port)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES), self._loop
        ).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            upstream_reader, upstream = await asyncio.open_connection(
                "127.0.0.1", self._upstream, limit=_MAX_HEAD_BYTES
            )
            try:
                while await self._one(reader, writer, upstream_reader, upstream):
                    pass
            finally:
                upstream.close()
        writer.close()

    async def _one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
    ) -> bool:
        """Forward one request and its response; return whether another one may follow on these connections."""
        head = await _next_head(reader, upstream_reader)
        if head is None:
            return False
        request = await _read_request(head, reader, writer)
        self.seen += 1
        method = request.first_line[0]
        fault = self.fault(method)
        self.met += fault is not None
        if fault is Fault.DROP_REQUEST:
            return False
        if fault is Fault.HALF_REQUEST:
            upstream.write(request.half)
            await upstream.drain()
            return False
        if fault in (Fault.ERROR_500, Fault.SLOW_DOWN):
            text = _ERROR.format(code=_CODES[fault.value]).encode()
            head = f"HTTP/1.1 {fault.value}\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n\r\n"
            writer.write(head.encode() + (b"" if method == "HEAD" else text))
            await writer.drain()
            return True
        upstream.write(request.head + request.body)
        await upstream.drain()
        response = await _read_response(upstream_reader, method)
        if fault is Fault.DROP_RESPONSE:
            return False
        if fault is Fault.DELAY:
            await asyncio.sleep(DELAY_SECONDS)
        writer.write(response.half if fault is Fault.HALF_RESPONSE else response.head + response.body)
        await writer.drain()
        return fault is not Fault.HALF_RESPONSE and not _ends(response)


async def _next_head(reader: asyncio.StreamReader, upstream: asyncio.StreamReader) -> bytes | None:
    """Return the head of the next request; None if the server first ends the connection or sends unrequested bytes.

    A client without a proxy hears of that before it takes the connection for another request.
    """
    head = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    unasked = asyncio.ensure_future(upstream.read(1))
    await asyncio.wait((head, unasked), return_when=asyncio.FIRST_COMPLETED)
    is_next = not unasked.done()
    other = unasked if is_next else head
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    return head.result() if is_next else None


async def _read_request(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Message:
    lines = head.split(b"\r\n")
    if _header(head, b"expect"):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        head = b"\r\n".join(line for line in lines if not line.lower().startswith(b"expect:"))
    return _Message(head, await _body(reader, head))


async def _read_response(reader: asyncio.StreamReader, method: str) -> _Message:
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b" ", 2)[1][:3]
    if status == b"100":
        return await _read_response(reader, method)
    if method == "HEAD" or status in (b"204", b"304"):
        return _Message(head, b"")
    if _header(head, b"content-length") or _header(head, b"transfer-encoding"):
        return _Message(head, await _body(reader, head))
    return _Message(head, await reader.read())  # its end is the end of the connection


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"chunked" in _header(head, b"transfer-encoding").lower():
        parts = []
        while True:
            size = await reader.readuntil(b"\r\n")
            chunk = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
            parts += [size, chunk]
            if chunk == b"\r\n":
                return b"".join(parts)
    return await reader.readexactly(int(_header(head, b"content-length") or b"0"))


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        found, _, text = line.partition(b":")
        if found.strip().lower() == name:
            return text.strip()
    return b""


def _ends(response: _Message) -> bool:
    old = response.head.startswith(b"HTTP/1.0")
    framed = _header(response.head, b"content-length") or _header(response.head, b"transfer-encoding")
    return old or not framed or _header(response.head, b"connection").lower() == b"close"
