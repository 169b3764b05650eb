"""Operational events in the ledger: queued in the transaction that makes them true, until a stage publishes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import operations as statements
from eventbridge.policy.operational_event import OperationalEvent


def queue_events(connection: Connection, events: Sequence[OperationalEvent]) -> None:
    """Queue events in the transaction that makes them true; a queued event is not added again."""
    if events:
        connection.execute(statements.QUEUE_EVENTS, [vars(event) for event in events])


class Operations(Database):
    """The part of the ledger about operational events."""

    def queue_operational_events(self, events: Sequence[OperationalEvent]) -> None:
        """Queue events of something that is already durable in the store; a queued event is not added again."""
        with self._writing() as connection:
            queue_events(connection, events)

    def waiting_operational_events(self, most: int) -> list[OperationalEvent]:
        """Return at most `most` events that wait to be published, in the order in which they happened."""
        with self._reading() as connection:
            return [_to_event(row) for row in connection.execute(statements.WAITING_EVENTS, {"most": most})]

    def drop_operational_events(self, event_ids: Sequence[str]) -> None:
        """Delete events that were published."""
        with self._writing() as connection:
            connection.execute(statements.DROP_EVENTS, {"ids": list(event_ids)})


def _to_event(row: Row[Any]) -> OperationalEvent:
    values = dict(row._mapping)
    del values["operation_id"]
    return OperationalEvent(**values)
