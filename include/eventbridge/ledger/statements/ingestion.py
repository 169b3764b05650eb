"""Statements about ingestion."""

from __future__ import annotations

from sqlalchemy import delete, select

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import ingestion_stop

#: Why ingestion is stopped; no row if it is not.
INGESTION_STOP = select(ingestion_stop.c.reason, ingestion_stop.c.since, ingestion_stop.c.cause)

#: Stops ingestion, unless it is stopped.
STOP_INGESTION = insert_or_skip(ingestion_stop)

#: Resumes it.
RESUME_INGESTION = delete(ingestion_stop)
