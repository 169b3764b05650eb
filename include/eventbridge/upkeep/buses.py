"""Trims buses that have no retention of their own: messages past the bus' retention that every runner has taken."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta

from eventbridge.errors import BusError, UserError
from eventbridge.model.partition import ConsumerOffset, Partition
from eventbridge.model.runner import LeftAt
from eventbridge.policy.retention import LEAST_AGE
from eventbridge.rules import Bus
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.sources.protocol import InboxLog, LogSource, TrimmableLog
from eventbridge.upkeep.run import Run

log = logging.getLogger(__name__)

#: Messages that are trimmed before the run checks its time; publishers are let in more often.
_AT_ONCE = 50_000


def trim_buses(run: Run) -> None:
    """Trim the buses of today's rules; a bus that does not respond is logged and keeps all messages.

    The bus `eventbridge` is not among them: it is trimmed when events are published to it.
    """
    known = run.runtime.ledger.deliverers()
    rules = run.runtime.rule_set()
    for bus in rules.buses.values():
        left = known.left({rule.name for rule in rules.rules.values() if rule.bus == bus.name})
        rows = [row for row in known.offsets if row.bus == bus.name and row.partition.topic in bus.source.topics]
        if bus.name != OPERATIONS_BUS.name and rows and not run.is_over():
            try:
                with closing(run.runtime.open_source(bus)) as source:
                    _trim(run, bus, source, rows, left)
            except (BusError, UserError) as error:
                log.warning("the bus %s keeps messages that are past their retention for now: %s", bus.name, error)


def _trim(run: Run, bus: Bus, source: LogSource, rows: Sequence[ConsumerOffset], left: Sequence[LeftAt]) -> None:
    """Trim a bus below the lowest committed offset of all registered runners, with or without rules.

    Messages that a moved rule still needs, from the offset its new runner begins at, are kept too.
    """
    if not isinstance(source, TrimmableLog):  # it has a retention of its own
        return
    identities = source.identities()
    if any(row.bus_identity not in ("", identities.get(row.partition.topic)) for row in rows):
        run.done.kept[f"bus {bus.name}: a runner stands on another log"] += 1
        return
    # The archive has the messages of an inbox, which therefore keeps only those that a runner has not taken.
    kept = LEAST_AGE if isinstance(source, InboxLog) else max(LEAST_AGE, timedelta(seconds=bus.retention_seconds))
    before = run.now - kept
    if isinstance(source, InboxLog):
        lost = source.lost_files(before)
        run.remove(lost)
        run.done.lost_files += len(lost)
    taken = _taken(rows, left, identities)
    first = {partition: source.earliest(partition) for partition in source.partitions()}
    for partition, earliest in first.items():
        old = source.offset_at(partition, before)
        end = min(old, taken.get(partition, earliest))
        if end < old:
            run.done.kept[f"bus {bus.name}: messages that a runner has not taken"] += old - end
        if run.dry_run:
            run.done.messages[bus.name] += max(0, end - earliest)
            continue
        while earliest < end and not run.is_over():
            earliest = min(end, earliest + _AT_ONCE)
            first[partition] = earliest
            run.done.messages[bus.name] += source.trim(before, first)
            run.progressed()


def _taken(
    rows: Sequence[ConsumerOffset], left: Sequence[LeftAt], identities: Mapping[str, str]
) -> dict[Partition, int]:
    """Return up to where every runner has taken a partition, and every rule that was left waits in it."""
    taken: dict[Partition, int] = {}
    for row in rows:
        taken[row.partition] = min(row.offset, taken.get(row.partition, row.offset))
    for each in left:
        known = identities.get(each.partition.topic, each.bus_identity)
        if each.partition in taken and each.bus_identity in ("", known):
            taken[each.partition] = min(each.offset, taken[each.partition])
    return taken
