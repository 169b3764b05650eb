"""Batches that follow: a shift opens one while the former is closed, so that what it delivers is recorded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    """Add the column, and let a runner have a batch that follows beside its one normal batch under way."""
    op.add_column("batch", sa.Column("follows", sa.Text()))
    op.drop_index("uq_batch_normal", "batch")
    _create_unique_index("uq_batch_normal", "runner", "kind = 'normal' AND state != 'committed' AND follows IS NULL")
    _create_unique_index("uq_batch_follows", "follows", "follows IS NOT NULL")


def _create_unique_index(name: str, column: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "batch", [column], unique=True, sqlite_where=where, postgresql_where=where)
