"""The ledger's table of overrides of rules and targets, beside the rule files."""

from __future__ import annotations

from sqlalchemy import Column, PrimaryKeyConstraint, Table, Text

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import metadata, one_of
from eventbridge.model.rule_state import OverrideKind

#: Each override holds until an operator clears it; `target` "" = of the rule.
override = Table(
    "override",
    metadata,
    Column("rule", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("set_by", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
    PrimaryKeyConstraint("rule", "target", "kind"),
    one_of("kind", OverrideKind),
)
