"""The connections of a push's targets: one that many targets name is read once for all of them."""

from __future__ import annotations

from collections.abc import Callable

from eventbridge.config.connection import Connection


class SharedConnections:
    """Reads connections for the targets of one push; any thread may ask.

    A `read` that remembers what it read is asked by its `anew` for what a target asks for again.
    """

    def __init__(self, read: Callable[[str], Connection]) -> None:
        self._read = read
        self._read_again: Callable[[str], Connection] = getattr(read, "anew", read)
        self._known: dict[str, Connection] = {}

    def knows(self, connection_id: str | None) -> bool:
        """Return whether nothing has to be read for a target with this connection."""
        return connection_id is None or connection_id in self._known

    def for_target(self) -> Callable[[str], Connection]:
        """Return what a target asks by: the first time for what was read, later for what it is at that moment."""
        asked: set[str] = set()

        def connection(connection_id: str) -> Connection:
            if connection_id in asked:
                self._known[connection_id] = self._read_again(connection_id)
            elif connection_id not in self._known:
                self._known[connection_id] = self._read(connection_id)
            asked.add(connection_id)
            return self._known[connection_id]

        return connection
