"""Overrides of rules and targets in the ledger; each holds until an operator clears it."""

from __future__ import annotations

from sqlalchemy import Column, PrimaryKeyConstraint, Table, Text, bindparam, delete, literal, select, union_all, update

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata, one_of
from eventbridge.ledger.quality import expectation_hold
from eventbridge.model.rule_state import OperatorOverride, OperatorOverrides, OverrideKind

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

_ONE = (
    (override.c.rule == bindparam("of_rule"))
    & (override.c.target == bindparam("of_target"))
    & (override.c.kind == bindparam("of_kind"))
)

#: All overrides.
OVERRIDES = select(override).order_by(override.c.rule, override.c.target, override.c.kind)

#: The `kind`, in the next query, of a rule that is on hold after a failed expectation.
ON_HOLD = "on_hold"

#: Everything that affects deliveries, in one query: overrides, and the rules that are on hold.
WHAT_HOLDS = union_all(
    select(override.c.rule, override.c.target, override.c.kind, override.c.value),
    select(expectation_hold.c.rule, literal(""), literal(ON_HOLD), literal("")),
)

#: Adds an override.
NOTE_OVERRIDE = insert_or_skip(override)

#: Changes the value of an override.
CHANGE_OVERRIDE = (
    update(override)
    .where(_ONE, override.c.value != bindparam("to"))
    .values(value=bindparam("to"), set_by=bindparam("who"), since=bindparam("now"))
)

#: Deletes an override that an operator cleared.
DROP_OVERRIDE = delete(override).where(_ONE)


class Overrides(Aggregate):
    """Overrides of rules and targets, beside the rule files."""

    def all(self) -> list[OperatorOverride]:
        """Return all overrides in order of rule, target and kind."""
        with self._reading() as connection:
            return [
                OperatorOverride(row.rule, row.target, row.kind, row.value, row.set_by, row.since)
                for row in connection.execute(OVERRIDES)
            ]

    def in_effect(self) -> OperatorOverrides:
        """Return the effect of overrides and failed expectations; a failed one holds its rule until it is released."""
        with self._reading() as connection:
            rows = connection.execute(WHAT_HOLDS).all()
        values = {(row.rule, row.target, row.kind): row.value for row in rows if row.kind != ON_HOLD}
        return OperatorOverrides(values, {row.rule for row in rows if row.kind == ON_HOLD})

    def set(self, rule: str, target: str, kind: OverrideKind, value: str, set_by: str) -> bool:
        """Set an override from now on; return False, and change nothing, if it is already set."""
        now = self._now()
        row = {"rule": rule, "target": target, "kind": kind, "value": value, "set_by": set_by, "since": now}
        change = {"of_rule": rule, "of_target": target, "of_kind": kind, "to": value, "who": set_by, "now": now}
        with self._writing() as connection:
            if connection.execute(NOTE_OVERRIDE, row).rowcount == 1:
                return True
            return connection.execute(CHANGE_OVERRIDE, change).rowcount == 1

    def clear(self, rule: str, target: str, kind: OverrideKind) -> bool:
        """Clear an override; return False if there was none."""
        of = {"of_rule": rule, "of_target": target, "of_kind": kind}
        with self._writing() as connection:
            return connection.execute(DROP_OVERRIDE, of).rowcount == 1
