"""From which revision on versions may use these tables: what only adds serves the version before, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Add the column; whoever migrates writes it."""
    op.add_column("ledger", sa.Column("serves_from", sa.Text(), nullable=False, server_default=""))
