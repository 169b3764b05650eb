"""Dead letters that are delivered again: what was asked for, and which letters were taken by which batch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the tables of redrives and of what they took."""
    op.create_table(
        "redrive",
        sa.Column("redrive_id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("rate", sa.Float(), nullable=True),
        sa.Column("retransform", sa.Boolean(), nullable=False),
        sa.Column("again", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('running', 'done', 'cancelled')", name="ck_redrive_state"),
        sa.PrimaryKeyConstraint("redrive_id", name="pk_redrive"),
        sa.UniqueConstraint("run", name="uq_redrive_run"),
    )
    op.create_table(
        "redriven",
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("redrive_id", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["redrive_id"], ["redrive.redrive_id"], name="fk_redriven_redrive_id"),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_redriven_batch_id"),
        sa.PrimaryKeyConstraint("file", "turn", name="pk_redriven"),
    )
    op.create_index("ix_redriven_batch_id", "redriven", ["batch_id"])
