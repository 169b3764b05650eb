"""What owners may publish, counted by all servers together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "publish_balance",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("events", sa.Float(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", name="pk_publish_balance"),
    )
