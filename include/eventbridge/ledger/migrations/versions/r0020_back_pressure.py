"""Which batches took all that they were allowed, by which capacity is measured, and why no new events are taken."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add both; of the batches that are there nobody noted whether they were full."""
    op.add_column("batch", sa.Column("is_full", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "intake_stop",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("singleton = 1", name="ck_intake_stop_singleton"),
        sa.PrimaryKeyConstraint("singleton", name="pk_intake_stop"),
    )
