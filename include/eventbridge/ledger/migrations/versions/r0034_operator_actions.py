"""Who asked for what by the HTTP API and the page."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "operator_action",
        sa.Column("action_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.PrimaryKeyConstraint("action_id", name="pk_operator_action"),
        sqlite_autoincrement=True,
    )
