"""For how long batches waited for one target alone: what its breaker decides by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column; what was waited before, nobody counted."""
    op.add_column("target_window", sa.Column("hold_up_ms", sa.BigInteger(), nullable=False, server_default="0"))
