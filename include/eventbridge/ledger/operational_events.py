"""Queues operational events in the ledger, in the transaction of the change that they report, for publishing later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NUMBERED, JsonText, RowId, UtcTime, insert_or_skip, metadata
from eventbridge.policy.operational_event import OperationalEvent

#: Operational events that are not published yet.
operational_event = sa.Table(
    "operational_event",
    metadata,
    sa.Column("operation_id", RowId, primary_key=True),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("time", UtcTime, nullable=False),
    sa.Column("data", JsonText, nullable=False),
    sa.UniqueConstraint("event_id"),
    **NUMBERED,
)

#: The queued events, in the order in which they happened.
WAITING_EVENTS = sa.select(operational_event).order_by(operational_event.c.operation_id).limit(sa.bindparam("most"))

#: Deletes events that were published.
DROP_EVENTS = sa.delete(operational_event).where(operational_event.c.event_id.in_(sa.bindparam("ids", expanding=True)))


class OperationalEvents(Aggregate):
    """Operational events that are not published yet."""

    def queue(self, events: Sequence[OperationalEvent]) -> None:
        """Queue events that report something already durable in the store; a queued event is not added again."""
        with self._writing() as connection:
            queue_events(connection, events)

    def waiting(self, limit: int) -> list[OperationalEvent]:
        """Return at most `limit` unpublished events, in the order in which they happened."""
        return [_to_event(row) for row in self._rows(WAITING_EVENTS, {"most": limit})]

    def drop(self, event_ids: Sequence[str]) -> None:
        """Delete events that were published."""
        self._change(DROP_EVENTS, {"ids": list(event_ids)})


def queue_events(connection: sa.Connection, events: Sequence[OperationalEvent]) -> None:
    """Queue events in the transaction of the change that they report; a queued event is not added again."""
    if events:
        connection.execute(insert_or_skip(operational_event), [vars(event) for event in events])


def _to_event(row: sa.Row[Any]) -> OperationalEvent:
    values = dict(row._mapping)
    del values["operation_id"]
    return OperationalEvent(**values)
