"""The index of event ids: its files, and which batches are in it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add them; what was landed before is indexed by the next runs of `maintain`."""
    op.add_column("batch", sa.Column("in_index", sa.Text(), nullable=False, server_default="no"))
    where = sa.text("kind = 'normal' AND in_index = 'no' AND kept IN ('all', 'archive')")
    op.create_index(
        "ix_batch_unindexed", "batch", ["planned_at", "batch_id"], sqlite_where=where, postgresql_where=where
    )
    op.create_table(
        "event_index",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_event_index"),
    )
