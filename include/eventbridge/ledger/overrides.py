"""Stores overrides of rules and targets in the ledger; each applies until an operator clears it."""

from __future__ import annotations

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata, one_of
from eventbridge.ledger.quality import expectation_hold
from eventbridge.model.rule_state import OperatorOverride, OperatorOverrides, OverrideKind

#: One row per override; `target` is empty for an override of the rule.
override = sa.Table(
    "override",
    metadata,
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("set_by", sa.Text, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.PrimaryKeyConstraint("rule", "target", "kind"),
    one_of("kind", OverrideKind),
)

_ONE = (
    (override.c.rule == sa.bindparam("of_rule"))
    & (override.c.target == sa.bindparam("of_target"))
    & (override.c.kind == sa.bindparam("of_kind"))
)

#: All overrides.
OVERRIDES = sa.select(override).order_by(override.c.rule, override.c.target, override.c.kind)

#: The `kind`, in the next query, of a rule that is on hold after a failed expectation.
ON_HOLD = "on_hold"

#: Everything that affects deliveries, in one query: overrides, and the rules that are on hold.
WHAT_HOLDS = sa.union_all(
    sa.select(override.c.rule, override.c.target, override.c.kind, override.c.value),
    sa.select(expectation_hold.c.rule, sa.literal(""), sa.literal(ON_HOLD), sa.literal("")),
)

#: Changes the value of an override.
CHANGE_OVERRIDE = (
    sa.update(override)
    .where(_ONE, override.c.value != sa.bindparam("to"))
    .values(value=sa.bindparam("to"), set_by=sa.bindparam("by"), since=sa.bindparam("now"))
)


class Overrides(Aggregate):
    """Overrides of rules and targets, which apply instead of the rule files."""

    def all(self) -> list[OperatorOverride]:
        """Return all overrides in order of rule, target and kind."""
        return [
            OperatorOverride(row.rule, row.target, row.kind, row.value, row.set_by, row.since)
            for row in self._rows(OVERRIDES)
        ]

    def get_effective(self) -> OperatorOverrides:
        """Return the overrides, and the rules on hold after a failed expectation, that apply now."""
        rows = self._rows(WHAT_HOLDS)
        values = {(row.rule, row.target, row.kind): row.value for row in rows if row.kind != ON_HOLD}
        return OperatorOverrides(values, {row.rule for row in rows if row.kind == ON_HOLD})

    def set(self, rule: str, target: str, kind: OverrideKind, value: str, set_by: str) -> bool:
        """Set an override from now on; return False, and change nothing, if it already has this value."""
        now = self._now()
        row = {"rule": rule, "target": target, "kind": kind, "value": value, "set_by": set_by, "since": now}
        change = {"of_rule": rule, "of_target": target, "of_kind": kind, "to": value, "by": set_by, "now": now}
        with self._writing() as connection:
            if connection.execute(insert_or_skip(override), row).rowcount == 1:
                return True
            return connection.execute(CHANGE_OVERRIDE, change).rowcount == 1

    def clear(self, rule: str, target: str, kind: OverrideKind) -> bool:
        """Clear an override; return False if none was set."""
        of = {"of_rule": rule, "of_target": target, "of_kind": kind}
        return self._change(sa.delete(override).where(_ONE), of) == 1
