"""The ledger's table of stats; see `model.stat`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import BY_KEY, metadata
from eventbridge.model.stat import BOUNDS_MS

#: The latency buckets' columns, in the order of their bounds.
BUCKET_COLUMNS = (*(f"within_{bound}" for bound in BOUNDS_MS), "later")
#: The columns that are added up if two stats have the same key.
SUMS = ("count", "matched", "size", "cpu", "latency", *BUCKET_COLUMNS)

#: Counts by time: the key begins with the time, so that a batch writes in one place and old rows lie together.
stat = Table(
    "stat",
    metadata,
    Column("scope", Text, nullable=False),
    Column("grain", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("bus", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in SUMS),
    PrimaryKeyConstraint("scope", "grain", "at", "bus", "rule", "target", "outcome"),
    **BY_KEY,
)
