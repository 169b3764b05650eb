"""Where a registered runner begins in a partition that it did not know: a new one, or one that was away."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from eventbridge.model.partition import Partition
from eventbridge.rule import Bus
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.guards.ledger_identity import registered_at
from eventbridge.stages.guards.log_identity import start_offset
from eventbridge.stages.runtime.runtime import Runtime

#: How far a broker's clock may be ahead of the ledger's without that an event is passed over; so old ones may come.
_CLOCKS_DIFFER: Final = timedelta(minutes=10)


def later_start(runtime: Runtime, runner: str, bus: Bus, source: LogSource, partition: Partition) -> int:
    """Return the offset of the first event of a partition that a registered runner is to have.

    Nothing of a new partition can have been seen before: it is taken from its beginning. One that a broker names may be
    old, and its broker was away: a time as `start_at` holds for it too, and `latest` is when the group was registered.
    """
    if bus.source.start_at not in ("earliest", "latest"):
        return start_offset(bus, source, partition)
    since = registered_at(runtime, runner) if partition.broker and bus.source.start_at == "latest" else None
    return source.earliest(partition) if since is None else source.offset_at(partition, since - _CLOCKS_DIFFER)
