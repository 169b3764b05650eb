"""When what is parked was published, and whether it was told that its time runs out: for targets with a deadline."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_TIMED = "state != 'closed' AND taken_by IS NULL AND published_at IS NOT NULL"


def upgrade() -> None:
    """Add the columns, empty: what is parked already had no deadline."""
    op.add_column("parked", sa.Column("published_at", sa.BigInteger()))
    op.add_column("parked", sa.Column("told_late_at", sa.BigInteger()))
    _create_partial_index("ix_parked_timed", _TIMED)
    _create_partial_index("ix_parked_untold", f"{_TIMED} AND told_late_at IS NULL")


def _create_partial_index(name: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "parked", ["rule", "target", "published_at"], sqlite_where=where, postgresql_where=where)
