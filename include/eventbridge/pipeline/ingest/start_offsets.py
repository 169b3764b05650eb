"""Decides where a runner continues if its bus deleted messages, and where it begins in a new partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from eventbridge.errors import OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.policy.batch_size import Waiting
from eventbridge.rules import Bus
from eventbridge.runtime.identity import registered_at, start_offset
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource

log = logging.getLogger(__name__)


def waiting_events(bus: Bus, source: LogSource, partition: Partition, offset: int) -> Waiting:
    """Return the messages that a partition has for a runner at `offset`.

    If the message at `offset` was deleted, `offset_reset` decides. With `latest`, the runner passes over everything in
    the partition as one gap; with `fail`, this function raises OffsetGapError.
    """
    earliest, end = source.earliest(partition), source.end(partition)
    if offset < earliest:
        _report_deletion(bus, partition, offset, earliest)
        if bus.source.offset_reset == "latest":
            earliest = end
    return Waiting(partition, offset, earliest, end)


def passes_over(bus: Bus, source: LogSource, partition: Partition, offset: int) -> bool:
    """Return whether a range that begins at `offset` is passed over entirely.

    It is passed over if its first message was deleted and `offset_reset` is `latest`. With `fail`, this function raises
    OffsetGapError.
    """
    if bus.source.offset_reset == "earliest":
        return False
    earliest = source.earliest(partition)
    if offset < earliest:
        _report_deletion(bus, partition, offset, earliest)
    return offset < earliest


def any_passed_over(bus: Bus, source: LogSource, offsets: Mapping[Partition, int]) -> bool:
    """Return whether the messages of any partition must be passed over. Raises OffsetGapError like `passes_over`.

    If so, no open batch may begin at `offsets`, because the messages that it would send would later be passed over
    together with the deleted ones.
    """
    if bus.source.offset_reset == "earliest":
        return False
    existing = [
        partition for partition in source.partitions() if partition in offsets and partition.topic in bus.source.topics
    ]
    return any(passes_over(bus, source, partition, offsets[partition]) for partition in existing)


def _report_deletion(bus: Bus, partition: Partition, offset: int, earliest: int) -> None:
    what = (
        f"the bus {bus.name!r} dropped offsets {offset} to {earliest - 1} of "
        f"{partition.topic}/{partition.partition_id} before they were taken"
    )
    if bus.source.offset_reset == "fail":
        raise OffsetGapError(
            f"{what[:1].upper()}{what[1:]}, and its offset_reset is fail. To continue, write offset_reset: earliest, "
            "which takes the remaining messages, or latest, which takes only new ones, and give the topic a longer "
            "retention"
        )
    log.error("ALARM %s; the reconciliation counts them as a gap; offset_reset is %s", what, bus.source.offset_reset)


#: The maximum difference between a broker's clock and the ledger's at which no event is missed. Because of this margin,
#: some older events are taken as well.
_CLOCKS_DIFFER: Final = timedelta(minutes=10)


def later_start(runtime: Runtime, runner: str, bus: Bus, source: LogSource, partition: Partition) -> int:
    """Return the offset of the first event that a registered runner takes from a partition that is new to it.

    It is the beginning of the partition, or the first event from the time in `start_at` on. A partition of a named
    broker may be old, because the broker was unreachable. For such a partition, `latest` means the time at which the
    runner was registered.
    """
    if bus.source.start_at not in ("earliest", "latest"):
        return start_offset(bus, source, partition)
    since = registered_at(runtime, runner) if partition.broker and bus.source.start_at == "latest" else None
    return source.earliest(partition) if since is None else source.offset_at(partition, since - _CLOCKS_DIFFER)
