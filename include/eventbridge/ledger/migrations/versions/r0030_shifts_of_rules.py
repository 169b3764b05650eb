"""Which runners of the rule set in force are in the mode express, and how long their shifts are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    """Add a column with a default."""
    op.add_column("rules_in_force", sa.Column("shifts", sa.Text(), nullable=False, server_default="{}"))
