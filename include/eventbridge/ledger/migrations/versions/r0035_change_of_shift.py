"""Who takes a shift over next, and which window it has: one shift goes on where the other ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    """Add columns that may be empty, or have a default."""
    op.add_column("shift", sa.Column("batch_id", sa.Text()))
    op.add_column("shift", sa.Column("wants_next", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("shift", sa.Column("next_holder", sa.Text()))
    op.add_column("shift", sa.Column("next_until", sa.BigInteger()))
