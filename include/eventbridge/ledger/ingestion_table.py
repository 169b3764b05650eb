"""The ledger's table about ingestion: at most one row, with the reason why ingestion is stopped."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Integer, Table, Text

from eventbridge.ledger.columns import Message, UtcTime
from eventbridge.ledger.definitions import metadata

ingestion_stop = Table(
    "ingestion_stop",
    metadata,
    Column("singleton", Integer, primary_key=True, autoincrement=False),
    Column("reason", Message, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("cause", Text, nullable=False, server_default="disk"),
    CheckConstraint("singleton = 1", name="singleton"),
)
