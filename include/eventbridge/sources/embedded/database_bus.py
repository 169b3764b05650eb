"""The embedded bus of several hosts: a durable log in the PostgreSQL database that holds their ledger.

It is told from the bus in a file, `eventbridge.sources.embedded.bus`, by its URI alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.server_tables import ServerTables
from eventbridge.sources.embedded.table_log import TableLog

#: How long a response of `ends` holds for one that follows the bus.
_ENDS_HOLD_SECONDS = 0.02


class DatabaseBus(TableLog):
    """A log source whose messages lie on the server of a ledger; processes of any number of hosts may use it."""

    def __init__(
        self,
        url: str,
        bus: str,
        *,
        topics: Sequence[str] = ("events",),
        partitions: int = 4,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(bus, lambda: ServerTables(url, bus), topics=topics, partitions=partitions, clock=clock)
        self._followed = False
        self._ends: Mapping[Partition, int] = {}
        self._ends_until = 0.0

    def ends(self) -> Mapping[Partition, int]:
        """Return the end offset of every partition, by one short query: cheap enough to ask several times a second.

        Followed, it is asked so often that a response holds for some milliseconds.
        """
        if time.monotonic() < self._ends_until:
            return self._ends
        found = super().ends()
        if self._followed:
            self._ends, self._ends_until = found, time.monotonic() + _ENDS_HOLD_SECONDS
        return found

    def follow(self, _positions: Mapping[Partition, int]) -> None:
        """Be asked for the ends hundreds of times a second."""
        self._followed = True
