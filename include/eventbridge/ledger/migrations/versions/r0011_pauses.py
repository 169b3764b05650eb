"""Until when a target asked for a pause: nothing is sent to it before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column; who asked before, nobody noted."""
    op.add_column("target_status", sa.Column("paused_until", sa.BigInteger()))
