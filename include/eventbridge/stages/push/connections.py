"""The connections of a push's targets: one that many targets name is read once for all of them."""

from __future__ import annotations

from collections.abc import Callable

from eventbridge.config.connection import Connection, RemembersConnections


class SharedConnections:
    """Reads connections for the targets of one push; any thread may ask."""

    def __init__(self, read: Callable[[str], Connection]) -> None:
        self._read = read
        # a target asks again when it was refused: what is remembered would be refused once more
        self._read_again = read.read_again if isinstance(read, RemembersConnections) else read
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
