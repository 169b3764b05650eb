"""Operational events in the ledger: queued in the transaction that makes them true, until a stage publishes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, Row, Table, Text, UniqueConstraint, bindparam, delete, select

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NUMBERED, JsonText, RowId, UtcTime, insert_or_skip, metadata
from eventbridge.policy.operational_event import OperationalEvent

#: Operational events that are not published yet.
operational_event = Table(
    "operational_event",
    metadata,
    Column("operation_id", RowId, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("time", UtcTime, nullable=False),
    Column("data", JsonText, nullable=False),
    UniqueConstraint("event_id"),
    **NUMBERED,
)

#: Queues events, unless they are already queued.
QUEUE_EVENTS = insert_or_skip(operational_event)

#: The queued events, in the order in which they happened.
WAITING_EVENTS = select(operational_event).order_by(operational_event.c.operation_id).limit(bindparam("most"))

#: Deletes events that were published.
DROP_EVENTS = delete(operational_event).where(operational_event.c.event_id.in_(bindparam("ids", expanding=True)))


class OperationalEvents(Aggregate):
    """Operational events that are not published yet."""

    def queue(self, events: Sequence[OperationalEvent]) -> None:
        """Queue events of something that is already durable in the store; a queued event is not added again."""
        with self._writing() as connection:
            queue_events(connection, events)

    def waiting(self, most: int) -> list[OperationalEvent]:
        """Return at most `most` events that wait to be published, in the order in which they happened."""
        with self._reading() as connection:
            return [_to_event(row) for row in connection.execute(WAITING_EVENTS, {"most": most})]

    def drop(self, event_ids: Sequence[str]) -> None:
        """Delete events that were published."""
        with self._writing() as connection:
            connection.execute(DROP_EVENTS, {"ids": list(event_ids)})


def queue_events(connection: Connection, events: Sequence[OperationalEvent]) -> None:
    """Queue events in the transaction that makes them true; a queued event is not added again."""
    if events:
        connection.execute(QUEUE_EVENTS, [vars(event) for event in events])


def _to_event(row: Row[Any]) -> OperationalEvent:
    values = dict(row._mapping)
    del values["operation_id"]
    return OperationalEvent(**values)
