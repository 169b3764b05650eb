"""Statements about operational events that wait to be published."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.target_tables import operational_event

#: Queues events, unless they are already queued.
QUEUE_EVENTS = insert_or_skip(operational_event)

#: The queued events, in the order in which they happened.
WAITING_EVENTS = select(operational_event).order_by(operational_event.c.operation_id).limit(bindparam("most"))

#: Deletes events that were published.
DROP_EVENTS = delete(operational_event).where(operational_event.c.event_id.in_(bindparam("ids", expanding=True)))
