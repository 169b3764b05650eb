"""Where in their queues the deliveries of a parked row lie: what order needs to know without reading them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; no target was ordered before, so what is parked has no spans."""
    op.add_column("parked", sa.Column("order_spans", sa.Text(), nullable=False, server_default="[]"))
