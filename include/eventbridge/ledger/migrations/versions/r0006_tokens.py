"""Tokens of targets that have a rate: all pushes of a target take theirs from one bucket."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the table; a bucket that was never used is full."""
    op.create_table(
        "target_tokens",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("count", sa.Float(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", "target", name="pk_target_tokens"),
    )
