"""The ledger's table about the watcher: at most one row, with the time of its last look."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Integer, Table

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata

watcher = Table(
    "watcher",
    metadata,
    Column("singleton", Integer, primary_key=True, autoincrement=False),
    Column("looked_at", UtcTime, nullable=False),
    CheckConstraint("singleton = 1", name="singleton"),
)
