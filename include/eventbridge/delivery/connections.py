"""The connections of a push's targets: a connection that many targets name is read once for all of them."""

from __future__ import annotations

from collections.abc import Callable

from eventbridge.config.connection import Connection, RemembersConnections


class SharedConnections:
    """Reads connections for the targets of one push; any thread may ask."""

    def __init__(self, read: Callable[[str], Connection]) -> None:
        self._read = read
        # a target reads again after a refusal: a remembered connection would be refused once more
        self._read_again = read.read_again if isinstance(read, RemembersConnections) else read
        self._known: dict[str, Connection] = {}

    def knows(self, connection_id: str | None) -> bool:
        """Return whether the connection of a target needs no reading."""
        return connection_id is None or connection_id in self._known

    def for_target(self) -> Callable[[str], Connection]:
        """Return the function by which a target reads its connection: first the shared one, later the current one."""
        asked: set[str] = set()

        def connection(connection_id: str) -> Connection:
            if connection_id in asked:
                self._known[connection_id] = self._read_again(connection_id)
            elif connection_id not in self._known:
                self._known[connection_id] = self._read(connection_id)
            asked.add(connection_id)
            return self._known[connection_id]

        return connection
