"""The ledger's table of how far the store was swept for files that nothing names; see `ledger.tables`."""

from __future__ import annotations

from sqlalchemy import Column, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata, one_of
from eventbridge.model.storage import SweepName

#: Files of batches planned before `through` were swept.
sweep = Table(
    "sweep",
    metadata,
    Column("name", Text, primary_key=True),
    Column("through", UtcTime, nullable=False),
    one_of("name", SweepName),
)
