"""The ledger's tables of the size of the store; see `ledger.tables`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata, one_of
from eventbridge.model.storage import Area

#: Total bytes. `counted_at`, for the area `other`: when all files of the store were measured.
store_size = Table(
    "store_size",
    metadata,
    Column("runner", Text, nullable=False),
    Column("bus", Text, nullable=False),
    Column("area", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("counted_at", UtcTime),
    PrimaryKeyConstraint("runner", "bus", "area"),
    one_of("area", Area),
)

#: Bytes of a batch that are in the sums; retention subtracts them.
batch_size = Table(
    "batch_size",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("deliveries", BigInteger, nullable=False),
    Column("archive", BigInteger, nullable=False),
    Column("dead_letters", BigInteger, nullable=False),
)
