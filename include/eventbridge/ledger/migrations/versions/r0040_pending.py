"""Pending deliveries, their states and those of references, rules and chunks, under their names of today."""

from __future__ import annotations

from alembic import op

from eventbridge.ledger.tables import metadata

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    """Make the tables again: nothing was released that has rows in them."""
    for old, new in (
        ("parked", "pending"),
        ("reference", "reference"),
        ("rule_status", "rule_status"),
        ("delivery_chunk", "delivery_chunk"),
    ):
        op.drop_table(old)
        metadata.tables[new].create(op.get_bind())
