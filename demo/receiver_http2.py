"""The test receiver's HTTP/2, for clients that choose it when TLS begins; many requests at a time per connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError

from demo.receiver_http import Connection, IncomingRequest, RequestLog
from demo.receiver_paths import Paths, Reply


class ProtocolChooser(asyncio.Protocol):
    """A TLS connection that becomes HTTP/2 or HTTP/1.1 by the negotiated protocol (ALPN)."""

    def __init__(self, paths: Paths, record: RequestLog) -> None:
        self._paths = paths
        self._record = record

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over."""
        assert isinstance(transport, asyncio.Transport)
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        chosen = Http2Connection if tls.selected_alpn_protocol() == "h2" else Connection
        protocol = chosen(self._paths, self._record)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


@dataclass
class _Stream:
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)
    taken: bool = False  # in flight: recorded, and without its whole response
    left: bytes = b""  # of the response's body
    reply: Reply | None = None
    timer: asyncio.TimerHandle | None = None


class Http2Connection(asyncio.Protocol):
    """One client's connection: each request gets its response when due, independent of the others."""

    def __init__(self, paths: Paths, record: RequestLog) -> None:
        self._paths = paths
        self._record = record
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._streams: dict[int, _Stream] = {}
        self._number = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Number the connection and send the preface; called first by asyncio or `ProtocolChooser`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._record.connections += 1
        self._number = self._record.connections
        self._http.initiate_connection()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and the requests without a response."""
        self._transport = None
        for number in list(self._streams):
            self._drop(number)

    def data_received(self, data: bytes) -> None:
        """Receive bytes, respond to each complete request, and continue responses that wait for flow control."""
        assert self._transport is not None
        try:
            events = self._http.receive_data(data)
        except ProtocolError:
            self._flush()
            self._transport.close()
            return
        given_up = {event.stream_id for event in events if isinstance(event, StreamReset)}
        for event in events:
            self._take(event, given_up)
        for number in list(self._streams):
            self._send_body(number)
        self._flush()

    def _take(self, event: Event, given_up: Collection[int]) -> None:
        if isinstance(event, RequestReceived):
            self._streams[event.stream_id] = _Stream({str(name): str(value) for name, value in event.headers})
        elif isinstance(event, DataReceived) and event.stream_id in self._streams:
            self._streams[event.stream_id].body += event.data
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self._response(event.stream_id, given_up)
        elif isinstance(event, StreamReset):
            self._drop(event.stream_id)

    def _response(self, number: int, given_up: Collection[int]) -> None:
        stream = self._streams[number]
        stream.taken = True
        self._record.in_flight += 1
        webhook_id, path = stream.headers.get("webhook-id", ""), stream.headers[":path"]
        reply = self._paths.reply(path, webhook_id, stream.headers, bytes(stream.body))
        body, method = bytes(stream.body), stream.headers[":method"]
        incoming = IncomingRequest(path, stream.headers, body, len(body), keep_alive=True, method=method)
        self._record.write(incoming, webhook_id, reply, self._number)
        if reply.status is None or number in given_up:  # h2 knows of that already, and takes no response
            if reply.drop and self._transport is not None:
                self._transport.close()
            return
        stream.reply = reply
        if reply.delay_seconds:
            loop = asyncio.get_running_loop()
            stream.timer = loop.call_later(reply.delay_seconds, self._begin_late, number)
        else:
            self._begin(number)

    def _begin_late(self, number: int) -> None:
        self._begin(number)
        self._flush()

    def _begin(self, number: int) -> None:
        stream = self._streams[number]
        assert stream.reply is not None
        headers = {name.lower(): value for name, value in stream.reply.headers.items()}
        self._http.send_headers(number, [(":status", str(stream.reply.status)), *headers.items()])
        stream.left = stream.reply.body
        self._send_body(number)

    def _send_body(self, number: int) -> None:
        """Send as much of a started response as flow control allows; end it once all is sent."""
        stream = self._streams.get(number)
        if stream is None or stream.reply is None or (stream.timer is not None and not stream.left):
            return
        while stream.left:
            room = min(self._http.local_flow_control_window(number), self._http.max_outbound_frame_size)
            if room <= 0:
                return
            self._http.send_data(number, stream.left[:room])
            stream.left = stream.left[room:]
        if stream.reply.drip_seconds:
            stream.timer = asyncio.get_running_loop().call_later(stream.reply.drip_seconds, self._drip, number)
        elif stream.reply.drop:
            self._flush()
            if self._transport is not None:
                self._transport.close()
        elif stream.reply.close:  # what is announced by nothing but the end does not come
            self._http.reset_stream(number, ErrorCodes.INTERNAL_ERROR)
            self._drop(number)
        else:
            self._http.end_stream(number)
            self._drop(number)

    def _drip(self, number: int) -> None:
        stream = self._streams[number]
        stream.left, stream.timer = b".", None
        self._send_body(number)
        self._flush()

    def _drop(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        if stream.timer is not None:
            stream.timer.cancel()
        if stream.taken:
            self._record.in_flight -= 1

    def _flush(self) -> None:
        if self._transport is not None:
            self._transport.write(self._http.data_to_send())
