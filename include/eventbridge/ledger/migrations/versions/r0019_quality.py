"""Quality: rules that are held as an expectation failed, and the hours that were checked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the tables; nothing was expected before."""
    op.create_table(
        "expectation_hold",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("found_in", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", name="pk_expectation_hold"),
    )
    op.create_table(
        "quality_check",
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("measures", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hour", name="pk_quality_check"),
    )
