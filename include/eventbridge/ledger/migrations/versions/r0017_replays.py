"""Archived events that are delivered again: what was asked for, what was looked through, and which batch took what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the tables of replays and of what they took."""
    op.create_table(
        "replay",
        sa.Column("replay_id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.Column("rate", sa.Float(), nullable=True),
        sa.Column("new_ids", sa.Boolean(), nullable=False),
        sa.Column("skip_delivered", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.CheckConstraint("state IN ('running', 'paused', 'done', 'cancelled')", name="ck_replay_state"),
        sa.PrimaryKeyConstraint("replay_id", name="pk_replay"),
        sa.UniqueConstraint("run", name="uq_replay_run"),
    )
    op.create_table(
        "replayed",
        sa.Column("replay_id", sa.Text(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=False),
        sa.Column("end_row", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=True),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["replay_id"], ["replay.replay_id"], name="fk_replayed_replay_id"),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_replayed_batch_id"),
        sa.PrimaryKeyConstraint("replay_id", "turn", "part", "file", name="pk_replayed"),
    )
    op.create_index("ix_replayed_batch_id", "replayed", ["batch_id"])
