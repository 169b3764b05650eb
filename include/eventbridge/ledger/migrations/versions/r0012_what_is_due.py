"""Indexes by which the doorbell's look, and a retry run's planning, cost the same however much is due."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_DUE = "state = 'due' AND taken_by IS NULL"


def upgrade() -> None:
    """Add them: of parked deliveries by kind, by age, of ordered targets; of references; of retry batches."""
    of_target = ["rule", "target"]
    _create_partial_index("ix_parked_due_kind", "parked", [*of_target, "held", "runner", "due_at"], _DUE)
    _create_partial_index("ix_parked_due_expiry", "parked", [*of_target, "expires_at"], _DUE)
    ordered = f"{_DUE} AND order_shard IS NOT NULL AND attempts"
    _create_partial_index("ix_parked_due_tried", "parked", [*of_target, "due_at"], f"{ordered} > 0")
    _create_partial_index("ix_parked_due_untried", "parked", [*of_target, "due_at"], f"{ordered} = 0")
    _create_partial_index("ix_reference_due", "reference", ["rule", "due_at"], _DUE)
    taken = "state != 'closed' AND taken_by IS NOT NULL"
    _create_partial_index("ix_reference_taken", "reference", ["rule"], taken)
    _create_partial_index("ix_batch_newest_retry", "batch", ["planned_at", "batch_id"], "kind = 'retry'")


def _create_partial_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
