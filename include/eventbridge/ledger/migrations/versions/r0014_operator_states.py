"""What operators said of rules and targets: pauses, disabled rules, other priorities and rates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the table; nobody said anything before."""
    op.create_table(
        "operator_state",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("said_by", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", "target", "word", name="pk_operator_state"),
        sa.CheckConstraint("word IN ('paused', 'disabled', 'priority', 'rate')", name="ck_operator_state_word"),
    )
