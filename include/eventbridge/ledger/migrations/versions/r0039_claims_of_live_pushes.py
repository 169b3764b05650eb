"""The end of the claim of a push: before it, another push takes the chunk only if the first one is known to be dead."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    """Add the column; pushes of a version before this one leave it empty, and can be overtaken at any time."""
    op.add_column("delivery_chunk", sa.Column("claimed_until", sa.BigInteger()))
