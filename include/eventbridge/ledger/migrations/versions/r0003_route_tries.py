"""What the slow and the failing parts of route need: tries of slices, tries of references, and how to find those."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the table of tries, what a reference lacked, and the indexes of references that wait or are taken."""
    op.create_table(
        "route_try",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("slice_id", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name="fk_route_try_batch_id"),
        sa.PrimaryKeyConstraint("batch_id", "slice_id", name="pk_route_try"),
    )
    op.add_column("reference", sa.Column("tries", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("reference", sa.Column("held_seconds", sa.Float(), nullable=False, server_default="0"))
    for name, column, where in (
        ("ix_reference_waiting", "rule", "state != 'closed'"),
        ("ix_reference_taken_by", "taken_by", "taken_by IS NOT NULL"),
    ):
        condition = sa.text(where)
        op.create_index(name, "reference", [column], sqlite_where=condition, postgresql_where=condition)
