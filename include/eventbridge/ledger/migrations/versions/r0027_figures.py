"""Figures: counts, bytes, CPU and latencies by minute, and the CPU that pushes of a chunk took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

_BOUNDS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 21_600_000, 86_400_000)
_SUMS = ("count", "matched", "size", "cpu", "latency", *(f"within_{bound}" for bound in _BOUNDS), "later")


def upgrade() -> None:
    """Add both; of what was committed before only what still waits is counted."""
    op.add_column("delivery_chunk", sa.Column("cpu", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "figure",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("grain", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("bus", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _SUMS),
        sa.PrimaryKeyConstraint("scope", "grain", "at", "bus", "rule", "target", "outcome", name="pk_figure"),
        sqlite_with_rowid=False,
    )
    # What waits today came into the books before they were counted.
    op.execute(
        f"INSERT INTO figure (scope, grain, at, bus, rule, target, outcome, {', '.join(_SUMS)}) "
        "SELECT 'bus', 'ever', 0, '', '', '', 'again', sum(parked.count), "
        f"{', '.join('0' for _ in _SUMS[1:])} FROM parked JOIN batch ON batch.batch_id = parked.batch_id "
        "WHERE parked.state <> 'closed' AND batch.state = 'committed' HAVING count(*) > 0"
    )
