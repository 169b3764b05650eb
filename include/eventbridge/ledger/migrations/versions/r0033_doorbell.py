"""When the doorbell looked last, by which DAGs choose how often their nets ring."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "doorbell",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("looked_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("singleton = 1", name="ck_doorbell_singleton"),
        sa.PrimaryKeyConstraint("singleton", name="pk_doorbell"),
    )
