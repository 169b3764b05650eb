"""Which rule set is in force, and what each rule set changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the tables; history begins with the next batch."""
    op.create_table(
        "rules_in_force",
        sa.Column("singleton", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rule_set", sa.Text(), nullable=False),
        sa.Column("runners", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("mistakes", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("singleton", name="pk_rules_in_force"),
        sa.CheckConstraint("singleton = 1", name="ck_rules_in_force_singleton"),
    )
    op.create_table(
        "rule_change",
        sa.Column("change_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("rule_set", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name="pk_rule_change"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_rule_change_rule", "rule_change", ["rule", "change_id"])
