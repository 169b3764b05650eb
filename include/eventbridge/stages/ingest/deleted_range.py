"""Messages that a bus dropped before a runner took them: where the runner goes on, by the bus's `offset_reset`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from eventbridge.decision.batch_size import Waiting
from eventbridge.errors import OffsetGapError
from eventbridge.model.queue import Queue
from eventbridge.rule import Bus
from eventbridge.sources.protocol import LogSource

log = logging.getLogger(__name__)


def waiting_of(bus: Bus, source: LogSource, queue: Queue, offset: int) -> Waiting:
    """Return what a queue holds for a runner that stands at `offset`; raises OffsetGapError where `fail` says so.

    With `latest` it holds nothing, if anything was dropped: all that is there is passed over, as one gap.
    """
    earliest, end = source.earliest(queue), source.end(queue)
    if offset < earliest:
        _tell(bus, queue, offset, earliest)
        if bus.source.offset_reset == "latest":
            earliest = end
    return Waiting(queue, offset, earliest, end)


def passes_over(bus: Bus, source: LogSource, queue: Queue, offset: int) -> bool:
    """Return whether a range that begins at `offset` is passed over as a whole: `latest`, and its begin was dropped.

    Raises OffsetGapError where `fail` says so.
    """
    if bus.source.offset_reset == "earliest":
        return False
    earliest = source.earliest(queue)
    if offset < earliest:
        _tell(bus, queue, offset, earliest)
    return offset < earliest


def any_passed_over(bus: Bus, source: LogSource, offsets: Mapping[Queue, int]) -> bool:
    """Return whether of any of the bus's queues the messages that are there are passed over; raises OffsetGapError.

    A batch without an end must not begin there: what comes later would be passed over with them, though it was sent.
    """
    if bus.source.offset_reset == "earliest":
        return False
    existing = [queue for queue in source.queues() if queue in offsets and queue.topic in bus.source.topics]
    return any(passes_over(bus, source, queue, offsets[queue]) for queue in existing)


def _tell(bus: Bus, queue: Queue, offset: int, earliest: int) -> None:
    what = (
        f"the bus {bus.name!r} dropped offsets {offset} to {earliest} of {queue.topic}/{queue.queue_id} "
        "before they were taken"
    )
    if bus.source.offset_reset == "fail":
        raise OffsetGapError(
            f"{what[:1].upper()}{what[1:]}, its offset_reset is fail. To go on, write offset_reset: earliest, which "
            "takes what is left, or latest, which takes only what comes from now on; give the topic more retention"
        )
    log.error("ALARM: %s: a gap in the books; offset_reset is %s", what, bus.source.offset_reset)
