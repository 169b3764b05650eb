"""Statements about operational events that wait to be published."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.target_tables import operational_event

#: Queues events, unless they wait already.
QUEUE_EVENTS = insert_or_skip(operational_event)

#: The events that wait, in the order in which they happened.
WAITING_EVENTS = select(operational_event).order_by(operational_event.c.operation_id).limit(bindparam("most"))

#: Drops events that were published.
DROP_EVENTS = delete(operational_event).where(operational_event.c.event_id.in_(bindparam("ids", expanding=True)))
