"""Publishes operational events to the bus `eventbridge`: called at the end of every stage that may have queued some.

They lie in the ledger, queued by the very transaction that made them true, until they are on the bus. A process that
dies in between leaves them to the next stage of any batch; one that dies after publishing has them published again,
under the same ids.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from eventbridge.decision.operational_event import OperationalEvent, of_dead_letters
from eventbridge.errors import BusError, UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Partition
from eventbridge.rule import Bus
from eventbridge.rule.operations_bus import OPERATIONS_BUS
from eventbridge.sources.protocol import TrimmableLog
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)

_AT_ONCE = 500


def publish_operational_events(runtime: Runtime) -> int:
    """Publish what waits and return how many events that are; a bus that does not take them is an alarm, no failure."""
    published = 0
    operations = None
    while events := runtime.ledger.waiting_operational_events(_AT_ONCE):
        operations = operations or runtime.operations_bus()
        try:
            with closing(runtime.open_publisher(operations)) as bus:
                bus.publish([(event.body(), event.subject) for event in events])
        except (BusError, UserError) as error:
            log.error("ALARM %d operational events or more wait in the ledger: %s", len(events), error)
            return published
        runtime.ledger.drop_operational_events([event.event_id for event in events])
        published += len(events)
    if operations is not None:  # nothing else lets the bus grow
        _trim(runtime, operations)
    return published


def _trim(runtime: Runtime, operations: Bus) -> None:
    """Drop from the bus what is older than its retention and was taken by every runner whose rules name it today.

    Where that cannot be told, or the bus does not respond, nothing is dropped now.
    """
    before = runtime.clock() - timedelta(seconds=operations.retention_seconds)
    try:
        with closing(runtime.open_source(operations)) as bus:
            if not isinstance(bus, TrimmableLog):  # it has a retention of its own
                return
            if all(bus.offset_at(partition, before) == bus.earliest(partition) for partition in bus.partitions()):
                return
            bus.trim(before, _not_taken(runtime, bus.identities()))
    except (BusError, UserError) as error:
        log.warning("the bus %s keeps what is older than its retention for now: %s", operations.name, error)


def _not_taken(runtime: Runtime, identities: Mapping[str, str]) -> dict[Partition, int]:
    """Return the lowest offset of each partition at which a runner stands that has, or hands over, a rule on the bus.

    A rule that moved goes on where its old runner stands, or where that left it. A runner that no rule names needs
    nothing.
    """
    known = runtime.ledger.deliverers()
    rules = {rule.name: rule for rule in runtime.rule_set().rules.values() if rule.bus == OPERATIONS_BUS.name}
    runners = {rule.runner for rule in rules.values()}
    for (name, target), was in known.assignments.items():
        if name in rules and target in rules[name].targets:
            runners.add(was.runner)
    kept: dict[Partition, int] = {}
    for row in known.offsets:
        counts = row.bus_identity in ("", identities.get(row.partition.topic))
        if row.bus == OPERATIONS_BUS.name and row.group in runners and counts:
            kept[row.partition] = min(row.offset, kept.get(row.partition, row.offset))
    for left in known.left(rules):
        if left.partition in kept and left.bus_identity in ("", identities.get(left.partition.topic)):
            kept[left.partition] = min(left.offset, kept[left.partition])
    return kept


#: What one event tells of: bus, rule, target, reason.
_Kind = tuple[str, str | None, str | None, str]


class DeadLetterNews:
    """What of a batch became dead letters, by rule, target and reason.

    Not what was itself an operational event: an alert that cannot be delivered must not make another for ever.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._names: dict[_Kind, list[str]] = defaultdict(list)
        self._responded_at: dict[_Kind, datetime] = {}

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take dead letter records into account."""
        for record in records:
            if record["bus"] == OPERATIONS_BUS.name:
                continue
            delivery = record.get("delivery_id")
            place = f"{record['topic']}/{record['partition_id']}/{record['offset']}"
            kind = (record["bus"], record.get("rule"), record.get("target"), record["reason"])
            self._names[kind].append(place if delivery is None else delivery_id_text(delivery))
            responded = [
                each["started_at"] + timedelta(milliseconds=each["duration_ms"]) for each in record["attempts"]
            ]
            self._responded_at[kind] = max([*responded, self._responded_at.get(kind, self._batch.planned_at)])

    def events(self) -> list[OperationalEvent]:
        """Return an event for each rule, target and reason; the same for the same batch, whenever it is asked.

        Its time is when the last response came for which one was dead-lettered; the batch's, where it was without an
        attempt.
        """
        return [
            of_dead_letters(self._batch.batch_id, *kind, names, self._responded_at[kind])
            for kind, names in self._names.items()
        ]
