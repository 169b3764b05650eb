"""A line to a server, kept from one call to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from eventbridge.rocketmq.remoting.connection import Connection
from eventbridge.rocketmq.remoting.settings import ClientSettings


class KeptConnection:
    """A connection that is opened when it is needed, and again once it broke; one call at a time."""

    def __init__(self, address: str, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._lock = Lock()
        self._connection: Connection | None = None

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Have the connection for the block; nobody else has it meanwhile."""
        with self._lock:
            if self._connection is None or not self._connection.is_usable():
                self._drop()
                self._connection = Connection(self._address, self._settings)
            try:
                yield self._connection
            except BaseException:  # whatever is on its way is for nobody
                self._drop()
                raise

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
