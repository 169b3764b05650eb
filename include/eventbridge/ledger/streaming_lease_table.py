"""The ledger's table of streaming leases: which process delivers a runner's events as they come, until when, and who is
next.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Table, Text, false

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata

#: Who has a runner's streaming lease, and until when; a holder's name is never used again. `batch_id` is the open batch
#: that it opened last. `wants_next`: it ends soon; `next_holder` is ready to go on, and is there until `next_until`.
streaming_lease = Table(
    "streaming_lease",
    metadata,
    Column("runner", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until", UtcTime, nullable=False),
    Column("batch_id", Text),
    Column("wants_next", Boolean, nullable=False, server_default=false()),
    Column("next_holder", Text),
    Column("next_until", UtcTime),
)
