"""The ledger's table of the files of the index of event ids; see `eventbridge.ledger.tables`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata

#: Each file names the archive files of batches that were planned on `day` (its beginning in UTC).
event_index = Table(
    "event_index",
    metadata,
    Column("path", Text, primary_key=True),
    Column("day", UtcTime, nullable=False),
    Column("rows", BigInteger, nullable=False),
)
