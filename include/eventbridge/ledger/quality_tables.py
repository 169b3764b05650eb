"""The ledger's tables about quality: rules on hold after a failed expectation, and the hours that were checked."""

from __future__ import annotations

from sqlalchemy import Column, Integer, Table, Text

from eventbridge.ledger.columns import Message, UtcTime
from eventbridge.ledger.definitions import metadata

#: A rule whose deliveries are on hold until an operator releases it.
expectation_hold = Table(
    "expectation_hold",
    metadata,
    Column("rule", Text, primary_key=True),
    Column("detail", Message, nullable=False),
    Column("found_in", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
)

#: An hour that was checked, once; `failures` 0 = it passed. The findings are in the store.
quality_check = Table(
    "quality_check",
    metadata,
    Column("hour", UtcTime, primary_key=True),
    Column("checked_at", UtcTime, nullable=False),
    Column("measures", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("record", Text, nullable=False),
)
