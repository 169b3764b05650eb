"""Batches that are open: their ranges grow while their deliveries are made; and the shifts that runners keep."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

_STATE = "ck_batch_state"
_BEFORE = "state IN ('planned', 'buffered', 'routed', 'settling', 'committed')"
_STATES = "state IN ('open', 'planned', 'buffered', 'routed', 'settling', 'committed')"


def upgrade() -> None:
    """Add the state and the table; no row changes."""
    if op.get_context().dialect.name == "sqlite":
        _widen_in_place()
    else:
        op.drop_constraint(_STATE, "batch", type_="check")
        op.create_check_constraint(_STATE, "batch", _STATES)
    op.create_table(
        "shift",
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("runner", name="pk_shift"),
    )


def _widen_in_place() -> None:
    """Change the constraint in the schema's text, as SQLite's manual says for what changes no content.

    To write the table again would take as long as there are batches, and every reference to one forbids it.
    """
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    changed = connection.exec_driver_sql(
        "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = 'batch' AND instr(sql, ?)",
        (_BEFORE, _STATES, _BEFORE),
    ).rowcount
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")
    assert changed == 1, "the constraint is written as the first revision wrote it"
