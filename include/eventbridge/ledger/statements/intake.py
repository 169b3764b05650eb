"""Statements about intake."""

from __future__ import annotations

from sqlalchemy import delete, select

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import intake_stop

#: Why no new events are taken; no row while they are.
INTAKE_STOP = select(intake_stop.c.reason, intake_stop.c.since, intake_stop.c.cause)

#: Stops intake, unless it is stopped.
STOP_INTAKE = insert_or_skip(intake_stop)

#: Resumes it.
RESUME_INTAKE = delete(intake_stop)
