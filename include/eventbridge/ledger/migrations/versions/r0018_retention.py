"""What retention has left of each batch, how far the store was swept, and the indexes by which both go on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add them; all that is there is kept whole."""
    for name in ("kept", "cleared"):
        op.add_column("batch", sa.Column(name, sa.Text(), nullable=False, server_default="all"))
    op.create_index("ix_batch_kept", "batch", ["kept", "runner", "bus", "planned_at", "batch_id"])
    op.create_index("ix_batch_rule_set", "batch", ["rule_set"])
    _create_partial_index("ix_batch_uncleared", "batch", "batch_id", "kept != cleared")
    for table in ("parked", "reference"):
        _create_partial_index(f"ix_{table}_closed_by", table, "closed_by", "closed_by IS NOT NULL")
    op.create_table(
        "sweep",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("through", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("name IN ('lost', 'expired')", name="ck_sweep_name"),
        sa.PrimaryKeyConstraint("name", name="pk_sweep"),
    )


def _create_partial_index(name: str, table: str, column: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, [column], sqlite_where=where, postgresql_where=where)
