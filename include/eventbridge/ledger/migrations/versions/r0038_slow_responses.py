"""How many responses of a target were slow, which decides whether it is degraded; how long batches waited is not kept.

A target is judged by its own responses and by nothing that this process needed time for.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    """Replace the column of hold-ups; what is in it is thirty seconds old at most, and decides nothing any more."""
    with op.batch_alter_table("target_window") as table:
        table.drop_column("hold_up_ms")
        table.add_column(sa.Column("slow", sa.BigInteger(), nullable=False, server_default="0"))
