"""How many slots a pool was last seen to have, beside those that its rule file set."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Make the table again: nothing was ever written to it."""
    op.drop_table("pool_applied")
    op.create_table(
        "pool_applied",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("applied_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_slots", sa.Integer(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name="pk_pool_applied"),
    )
