"""The ledger's table of streaming leases: which process delivers a runner's events as they arrive, until when, and
which one is next.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Table, Text, false

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata

#: The holder of a runner's streaming lease, and until when; a holder's name is never reused. `batch_id` is the batch
#: that it opened last. `wants_next`: it ends soon. `next_holder` is the standby, registered until `next_until`.
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
