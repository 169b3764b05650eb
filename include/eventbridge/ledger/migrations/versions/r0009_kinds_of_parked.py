"""Indexes by which a retry run is planned at the same cost however much is parked and not due."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_UNTAKEN = "state != 'closed' AND taken_by IS NULL"


def upgrade() -> None:
    """Add them: by kind, by shard, and of what batches under way have taken."""
    kind = ["rule", "target", "state", "held", "runner", "held_since"]
    _create_partial_index("ix_parked_kind", kind, _UNTAKEN)
    shard = ["rule", "target", "order_shard"]
    _create_partial_index("ix_parked_shard", [*shard, "state", "held"], f"{_UNTAKEN} AND order_shard IS NOT NULL")
    taken = [*shard, "state", "taken_by"]
    _create_partial_index("ix_parked_taken", taken, "state != 'closed' AND taken_by IS NOT NULL")


def _create_partial_index(name: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "parked", columns, sqlite_where=where, postgresql_where=where)
