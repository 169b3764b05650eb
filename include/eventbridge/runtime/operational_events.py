"""Publishes operational events to the bus `eventbridge`, at the end of every stage that may have queued some.

An event is queued in the ledger in the same transaction as the change that it reports, and is removed once it is on the
bus. If the process dies in between, the next stage of any batch publishes the event, for the second time if the process
had already published it. Both copies have the same id.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from eventbridge.errors import BusError, UserError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Partition
from eventbridge.policy.operational_event import OperationalEvent, dead_letters_event
from eventbridge.rules import Bus
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import TrimmableLog

log = logging.getLogger(__name__)

_AT_ONCE = 500


def publish_operational_events(runtime: Runtime) -> int:
    """Publish the queued events, and return how many were published.

    If the bus does not accept them, log an alarm and leave them in the queue.
    """
    published = 0
    operations = None
    while events := runtime.ledger.operational_events.waiting(_AT_ONCE):
        operations = operations or runtime.operations_bus()
        try:
            with closing(runtime.open_publisher(operations)) as bus:
                bus.publish([(event.body(), event.subject) for event in events])
        except (BusError, UserError) as error:
            log.error("ALARM at least %d operational events are waiting in the ledger: %s", len(events), error)
            return published
        runtime.ledger.operational_events.drop([event.event_id for event in events])
        published += len(events)
    if operations is not None:  # only publishing makes the bus grow
        _trim(runtime, operations)
    return published


def _trim(runtime: Runtime, operations: Bus) -> None:
    """Remove the events that are past the bus's retention and that all runners with rules on the bus have taken.

    If this is unknown, or if the bus does not respond, nothing is removed now.
    """
    before = runtime.clock() - timedelta(seconds=operations.retention_seconds)
    try:
        with closing(runtime.open_source(operations)) as bus:
            if not isinstance(bus, TrimmableLog):  # a broker removes old events itself
                return
            if all(bus.offset_at(partition, before) == bus.earliest(partition) for partition in bus.partitions()):
                return
            bus.trim(before, _not_taken(runtime, bus.identities()))
    except (BusError, UserError) as error:
        log.warning("the bus %s keeps events that are older than its retention for now: %s", operations.name, error)


def _not_taken(runtime: Runtime, identities: Mapping[str, str]) -> dict[Partition, int]:
    """Return, for each partition, the lowest committed offset of the runners that still need events of the bus.

    They are the runners that have a rule on the bus, and those from which a rule is being moved, because the rule
    continues at the offset of its old runner or where that runner stopped. Other runners are ignored.
    """
    known = runtime.ledger.assignments.deliverers()
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
    for left in known.departures(rules):
        if left.partition in kept and left.bus_identity in ("", identities.get(left.partition.topic)):
            kept[left.partition] = min(left.offset, kept[left.partition])
    return kept


#: The subject of one event: bus, rule, target and reason.
_Kind = tuple[str, str | None, str | None, str]


class DeadLetterNews:
    """The dead letters of a batch by bus, rule, target and reason.

    Operational events are not counted, because an alert that cannot be delivered must not cause further alerts forever.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._names: dict[_Kind, list[str]] = defaultdict(list)
        self._responded_at: dict[_Kind, datetime] = {}

    def add(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add dead letter records."""
        for record in records:
            if record["bus"] == OPERATIONS_BUS.name:
                continue
            delivery = record.get("delivery_id")
            position = f"{record['topic']}/{record['partition_id']}/{record['offset']}"
            kind = (record["bus"], record.get("rule"), record.get("target"), record["reason"])
            self._names[kind].append(position if delivery is None else delivery_id_text(delivery))
            responded = [
                each["started_at"] + timedelta(milliseconds=each["duration_ms"]) for each in record["attempts"]
            ]
            self._responded_at[kind] = max([*responded, self._responded_at.get(kind, self._batch.planned_at)])

    def events(self) -> list[OperationalEvent]:
        """Return an event for each bus, rule, target and reason. The same batch always results in the same events.

        The time of an event is that of the last response to its dead letters or, if there was no attempt, the time when
        the batch was planned.
        """
        return [
            dead_letters_event(self._batch.batch_id, *kind, names, self._responded_at[kind])
            for kind, names in self._names.items()
        ]
