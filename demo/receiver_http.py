"""The test receiver's HTTP/1.1: keep-alive, pipelining, chunked bodies; one request at a time per connection."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from demo.receiver_paths import Paths, Reply, batch_request_ids

_HEAD_BYTES = 64 * 1024
_BODY_BYTES = 64 * 1024 * 1024


class BadRequest(Exception):
    """A request that is not HTTP/1.1, or too large; the message is returned with 400."""


@dataclass(frozen=True)
class IncomingRequest:
    """A request that was read from a connection."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    length: int  # its length on the connection, in bytes
    keep_alive: bool
    method: str = "POST"


def read_request(data: bytes) -> IncomingRequest | None:
    """Return the first request in `data`, None if it is incomplete; raises BadRequest."""
    if not data[:1].isalpha():  # such as a TLS greeting, after which nothing follows
        raise BadRequest("a request begins with a method")
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > _HEAD_BYTES:
            raise BadRequest("the head is too large")
        return None
    lines = data[:end].decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest("the request line is not HTTP/1.1")
    headers = _headers(lines[1:])
    found = _body(data, end + 4, headers)
    if found is None:
        return None
    body, length = found
    keep_alive = parts[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return IncomingRequest(parts[1], headers, body, length, keep_alive, parts[0])


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise BadRequest("a header line is malformed")
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    return headers


def _body(data: bytes, start: int, headers: Mapping[str, str]) -> tuple[bytes, int] | None:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _chunked_body(data, start)
    announced = headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > _BODY_BYTES:
        raise BadRequest("the content-length is malformed or too large")
    end = start + int(announced)
    return (data[start:end], end) if len(data) >= end else None


def _chunked_body(data: bytes, position: int) -> tuple[bytes, int] | None:
    parts: list[bytes] = []
    while True:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return None
        try:
            size = int(data[position:line_end].partition(b";")[0], 16)
        except ValueError:
            raise BadRequest("a chunk's size is malformed") from None
        position = line_end + 2
        if size == 0:
            trailer_end = data.find(b"\r\n", position)  # trailers are not accepted: the empty line must follow
            if trailer_end < 0:
                return None
            if trailer_end != position:
                raise BadRequest("trailers are not accepted")
            return b"".join(parts), position + 2
        if len(data) < position + size + 2:
            return None
        parts.append(data[position : position + size])
        position += size + 2


class RequestLog:
    """The log: one JSON line for each request, passed to the operating system before the response is sent."""

    def __init__(self, descriptor: int, whole: bool) -> None:
        self._descriptor = descriptor
        self._whole = whole
        self.connections = 0
        self.in_flight = 0

    def write(self, incoming: IncomingRequest, webhook_id: str, reply: Reply, connection: int) -> None:
        """Add a request with its response."""
        line: dict[str, object] = {
            "at": datetime.now(UTC).isoformat(),
            "path": incoming.path,
            "webhook_id": webhook_id,
            "status": reply.status,
            "in_flight": self.in_flight,
            "connection": connection,
        }
        if ids := batch_request_ids(incoming.headers):
            line["webhook_ids"] = ids
            line["item_statuses"] = list(reply.item_statuses) or [reply.status] * len(ids)
        if self._whole:
            line["method"] = incoming.method
            line["headers"] = dict(incoming.headers)
            line["body"] = base64.b64encode(incoming.body).decode("ascii")
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")


class Connection(asyncio.Protocol):
    """One client's connection: requests get responses in the order in which they arrived."""

    def __init__(self, paths: Paths, record: RequestLog) -> None:
        self._paths = paths
        self._record = record
        self._buffer = bytearray()
        self._busy = False
        self._number = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Number the connection; asyncio calls this first."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._record.connections += 1
        self._number = self._record.connections

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and the request without a response."""
        if self._timer is not None:
            self._timer.cancel()
        if self._busy:
            self._record.in_flight -= 1
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Receive bytes and respond to each complete request."""
        self._buffer += data
        self._take_requests()

    def _take_requests(self) -> None:
        while self._transport is not None and not self._busy and self._buffer:
            try:
                incoming = read_request(bytes(self._buffer))
            except BadRequest as refusal:
                self._send(Reply(400, body=f"{refusal}\n".encode(), close=True), keep_alive=False)
                return
            if incoming is None:
                self._encourage()
                return
            del self._buffer[: incoming.length]
            self._take(incoming)

    def _encourage(self) -> None:
        """Respond to `Expect: 100-continue` of a request whose body is still to come."""
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if separator and not body and b"100-continue" in head.lower():
            assert self._transport is not None
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _take(self, incoming: IncomingRequest) -> None:
        self._busy = True
        self._record.in_flight += 1
        webhook_id = incoming.headers.get("webhook-id", "")
        reply = self._paths.reply(incoming.path, webhook_id, incoming.headers, incoming.body)
        self._record.write(incoming, webhook_id, reply, self._number)
        if reply.status is None:
            if reply.drop and self._transport is not None:
                self._transport.close()
            return
        if reply.delay_seconds:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(reply.delay_seconds, self._respond_late, reply, incoming.keep_alive)
        else:
            self._response(reply, incoming.keep_alive)

    def _respond_late(self, reply: Reply, keep_alive: bool) -> None:
        self._response(reply, keep_alive)
        self._take_requests()

    def _response(self, reply: Reply, keep_alive: bool) -> None:
        self._send(reply, keep_alive)
        if reply.drip_seconds:
            self._drip(reply)
        else:
            self._busy = False
            self._record.in_flight -= 1

    def _send(self, reply: Reply, keep_alive: bool) -> None:
        assert self._transport is not None
        assert reply.status is not None
        if reply.hints:
            self._transport.write(_lines("HTTP/1.1 103 Early Hints", reply.hints))
        self._transport.write(_head(reply, keep_alive) + reply.body)
        if reply.close or not keep_alive:
            self._transport.close()

    def _drip(self, reply: Reply) -> None:
        if self._transport is None:
            return
        self._transport.write(b".")
        self._timer = asyncio.get_running_loop().call_later(reply.drip_seconds, self._drip, reply)


def _head(reply: Reply, keep_alive: bool) -> bytes:
    assert reply.status is not None
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Unknown"
    headers = {}
    if reply.status not in (204, 304):
        announced = len(reply.body) if reply.announced_bytes is None else reply.announced_bytes
        headers = {"Content-Type": "text/plain", "Content-Length": str(announced)}
    headers |= reply.headers
    if not keep_alive:
        headers["Connection"] = "close"
    return _lines(f"HTTP/1.1 {reply.status} {phrase}", headers)


def _lines(first: str, headers: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")
