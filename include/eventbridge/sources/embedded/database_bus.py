"""The embedded bus of several hosts: a durable log in the PostgreSQL database that holds their ledger.

Its URI alone distinguishes it from the bus in a file, `eventbridge.sources.embedded.bus`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.server_tables import ServerTables
from eventbridge.sources.embedded.table_log import TableLog

#: How long a result of `ends` is reused while the bus is followed.
_ENDS_HOLD_SECONDS = 0.02


class DatabaseBus(TableLog):
    """A log source in the database of a ledger; processes on any number of hosts may use it."""

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
        """Return the end offset of every partition by one short query, cheap enough for several calls a second.

        While the bus is followed, a result is reused for some milliseconds.
        """
        if time.monotonic() < self._ends_until:
            return self._ends
        found = super().ends()
        if self._followed:
            self._ends, self._ends_until = found, time.monotonic() + _ENDS_HOLD_SECONDS
        return found

    def follow(self, _positions: Mapping[Partition, int]) -> None:
        """Prepare for hundreds of calls of `ends` a second."""
        self._followed = True
