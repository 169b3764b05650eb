"""Where a registered runner begins in a partition that is new to it: a new one, or one whose broker was unreachable."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from eventbridge.model.partition import Partition
from eventbridge.rules import Bus
from eventbridge.runtime.identity import registered_at, start_offset
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource

#: How far a broker's clock may be ahead of the ledger's without skipping an event; in return, older events may come.
_CLOCKS_DIFFER: Final = timedelta(minutes=10)


def later_start(runtime: Runtime, runner: str, bus: Bus, source: LogSource, partition: Partition) -> int:
    """Return the offset of the first event that a registered runner takes of a partition that is new to it.

    A new partition is taken from its beginning. One that a broker names may be old, because its broker was unreachable:
    a time in `start_at` applies to it too, and `latest` means the time at which the group was registered.
    """
    if bus.source.start_at not in ("earliest", "latest"):
        return start_offset(bus, source, partition)
    since = registered_at(runtime, runner) if partition.broker and bus.source.start_at == "latest" else None
    return source.earliest(partition) if since is None else source.offset_at(partition, since - _CLOCKS_DIFFER)
