"""Which log an offset was committed on: the bus's identity beside every committed offset."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; what was committed before has none yet, and gets one when its bus is looked at next."""
    op.add_column("consumer_offset", sa.Column("bus_identity", sa.Text(), nullable=False, server_default=""))
