"""A connection to a server that is kept between calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from eventbridge.clients.rocketmq.remoting.connection import Connection
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings


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
