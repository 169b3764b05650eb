"""How many responses of a target were slow: it is judged by these, and no longer by how long batches waited for it.

`hold_up_ms` stays for as long as a version before this one, which counts in it, may work beside this one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    """Add the column; which responses were slow before, nobody counted."""
    op.add_column("target_window", sa.Column("slow", sa.BigInteger(), nullable=False, server_default="0"))
