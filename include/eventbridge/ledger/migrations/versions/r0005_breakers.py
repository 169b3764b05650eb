"""What breakers need: until when a target stands as it does, its good probes, and its attempts by second."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns, the state half-open, and the table of attempts; how targets stand is kept."""
    state = "ck_target_status_state"
    with op.batch_alter_table("target_status") as table:
        table.add_column(sa.Column("until", sa.BigInteger()))
        table.add_column(sa.Column("good", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("slow", sa.Boolean(), nullable=False, server_default="0"))
        table.add_column(sa.Column("failing_since", sa.BigInteger()))
        table.drop_constraint(state, type_="check")
        table.create_check_constraint(state, "state IN ('ok', 'degraded', 'half-open', 'disabled')")
    op.create_table(
        "target_window",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("second", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("rule", "target", "second", name="pk_target_window"),
    )
