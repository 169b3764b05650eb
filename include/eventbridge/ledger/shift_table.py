"""The ledger's table of shifts: which process delivers a runner's events as they come, and until when."""

from __future__ import annotations

from sqlalchemy import Column, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata

#: Who has a runner's shift, and until when; a holder's name is never used again.
shift = Table(
    "shift",
    metadata,
    Column("runner", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until", UtcTime, nullable=False),
)
