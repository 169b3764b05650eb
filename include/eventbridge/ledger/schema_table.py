"""The ledger's table of schemas: the known fields of events of a type; see `model.event_schema`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata

#: One row a type of a bus; `version` is compared and set, because several runners may learn from one bus.
event_schema = Table(
    "event_schema",
    metadata,
    Column("bus", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("sampled", BigInteger, nullable=False),
    Column("first_at", UtcTime, nullable=False),
    Column("last_at", UtcTime, nullable=False),
    Column("fields", Text, nullable=False),
    PrimaryKeyConstraint("bus", "type"),
)
