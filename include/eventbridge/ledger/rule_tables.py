"""The ledger's tables about rule sets: the one in force, and the changes of each."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Integer, Table, Text

from eventbridge.ledger.columns import JsonText, RowId, UtcTime
from eventbridge.ledger.definitions import metadata

#: The one row that names the rule set for new batches.
rules_in_force = Table(
    "rules_in_force",
    metadata,
    Column("singleton", Integer, primary_key=True, autoincrement=False),
    Column("rule_set", Text, nullable=False),
    Column("runners", JsonText, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("errors", JsonText, nullable=False),
    Column("streaming_task_seconds", JsonText, nullable=False, server_default="{}"),
    CheckConstraint("singleton = 1", name="singleton"),
)

#: Changes by rule sets, one row a rule; version "" = the rule was removed.
rule_change = Table(
    "rule_change",
    metadata,
    Column("change_id", RowId, primary_key=True),
    Column("rule", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("rule_set", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)
Index("ix_rule_change_rule", rule_change.c.rule, rule_change.c.change_id)
