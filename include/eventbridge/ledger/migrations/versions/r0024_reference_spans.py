"""Where the events of a reference lie in their queues, so that no ordered target has to read its files to know."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Add the column; empty, as in references that are there: their files are read."""
    op.add_column("reference", sa.Column("order_spans", sa.Text(), nullable=False, server_default="[]"))
