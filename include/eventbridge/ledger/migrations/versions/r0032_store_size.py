"""How much the store holds, by batch and in sum; and for want of what intake stopped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Add two tables, and a column with a default."""
    op.create_table(
        "store_size",
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("area", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("counted_at", sa.BigInteger()),
        sa.CheckConstraint("area IN ('deliveries', 'archive', 'dead_letters', 'other')", name="ck_store_size_area"),
        sa.PrimaryKeyConstraint("runner", "bus", "area", name="pk_store_size"),
    )
    op.create_table(
        "batch_size",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("deliveries", sa.BigInteger(), nullable=False),
        sa.Column("archive", sa.BigInteger(), nullable=False),
        sa.Column("dead_letters", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("batch_id", name="pk_batch_size"),
    )
    op.add_column("intake_stop", sa.Column("cause", sa.Text(), nullable=False, server_default="disk"))
