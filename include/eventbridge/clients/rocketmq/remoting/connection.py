"""Sends requests over one connection to a server, and receives responses in any order, each with a timeout."""

from __future__ import annotations

import itertools
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock

from eventbridge.clients.rocketmq.remoting.errors import HostUnknown, Malformed, TimedOut, TlsFailed, Unreachable
from eventbridge.clients.rocketmq.remoting.frames import ResponseFrame, request, sign, take_frames
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings

_CHUNK = 1 << 18


class Connection:
    """A connection to `host:port`; only one thread at a time may use it. Raises Unreachable if it cannot be opened.

    Close a connection that raised Unreachable or Malformed.
    """

    def __init__(self, address: str, settings: ClientSettings) -> None:
        self.address = address
        self._settings = settings
        self._numbers = itertools.count(1)
        self._received = bytearray()
        self._chunk = memoryview(bytearray(_CHUNK))
        self._responses: deque[ResponseFrame] = deque()
        self._socket = self._open()

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> ResponseFrame:
        """Send one request and return its response. Raises Unreachable, of which TimedOut is a subclass."""
        number = self.send(code, fields, body)
        end = time.monotonic() + self._settings.timeout_seconds
        while True:
            response = self.receive(end - time.monotonic())
            if response is None:
                raise TimedOut(self.address, f"no response within {self._settings.timeout_seconds:g} s")
            if response.opaque == number:
                return response

    def send(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        """Send a request and return its number, which its response repeats."""
        texts = {name: str(value) for name, value in fields.items()}
        if self._settings.access_key:
            texts = sign(texts, body, self._settings.access_key, self._settings.secret_key)
        number = next(self._numbers)
        try:
            self._socket.settimeout(self._settings.timeout_seconds)
            self._socket.sendall(request(code, number, texts, body))
        except OSError as error:
            self.close()  # the connection is unusable, because a part of the request may have been sent
            raise self._broken(error) from None
        return number

    def receive(self, wait_seconds: float) -> ResponseFrame | None:
        """Return the next response, or None if none arrives in time."""
        end = time.monotonic() + wait_seconds
        while not self._responses:
            left = end - time.monotonic()
            try:
                self._socket.settimeout(max(0.0, left))
                count = self._socket.recv_into(self._chunk)
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
                if left <= 0:
                    return None
                continue
            except OSError as error:
                raise self._broken(error) from None
            if not count:
                raise Unreachable(self.address, "the connection was closed")
            self._received += self._chunk[:count]
            try:
                self._responses += take_frames(self._received)
            except Malformed as error:
                raise Malformed(f"{self.address}: {error}") from None
        return self._responses.popleft()

    def is_usable(self) -> bool:
        """Return whether an idle connection is still open; if it is readable, the server has closed it."""
        try:
            return not select.select([self._socket], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._socket.close()

    def _open(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        opened: socket.socket | None = None
        try:
            context = self._settings.tls.context() if self._settings.tls else None
            opened = socket.create_connection((host.strip("[]"), int(port)), self._settings.timeout_seconds)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(opened, server_hostname=host) if context else opened
        except (OSError, ValueError) as error:
            if opened is not None:
                opened.close()
            raise self._broken(error) from None

    def _broken(self, error: Exception) -> Unreachable:
        if isinstance(error, ssl.SSLError):
            return TlsFailed(self.address, f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}")
        if isinstance(error, socket.gaierror):
            return HostUnknown(self.address, "the host name has no address")
        if isinstance(error, TimeoutError):
            return TimedOut(self.address, f"no response within {self._settings.timeout_seconds:g} s")
        why = getattr(error, "strerror", None) or str(error)
        return Unreachable(self.address, why.lower())


class KeptConnection:
    """A connection that is opened on first use and reopened after it broke; one call at a time."""

    def __init__(self, address: str, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._lock = Lock()
        self._connection: Connection | None = None

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Reserve the connection for the block."""
        with self._lock:
            if self._connection is None or not self._connection.is_usable():
                self._drop()
                self._connection = Connection(self._address, self._settings)
            try:
                yield self._connection
            except BaseException:  # a response that is still on its way would reach the next caller
                self._drop()
                raise

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
