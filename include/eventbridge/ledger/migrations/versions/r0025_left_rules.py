"""Where a runner stood when it took its first batch without a rule that rule files gave to another runner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Add the column, empty: no runner is known to have left a rule."""
    op.add_column("event_target_runner", sa.Column("left_at", sa.Text(), nullable=False, server_default="[]"))
