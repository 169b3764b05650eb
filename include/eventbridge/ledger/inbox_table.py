"""The ledger's table of the inbox: files in the store with messages of queues; see `ledger.tables`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, PrimaryKeyConstraint, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata

#: Messages `start` (included) to `end` (excluded) of a topic; `again`: how many received since were repeats.
#: Not `acknowledged`: the queue may hand them out again.
inbox_file = Table(
    "inbox_file",
    metadata,
    Column("bus", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("path", Text, nullable=False),
    Column("again", BigInteger, nullable=False),
    Column("stored_at", UtcTime, nullable=False),
    Column("acknowledged", Boolean, nullable=False),
    PrimaryKeyConstraint("bus", "topic", "start"),
)
