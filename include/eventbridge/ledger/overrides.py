"""Overrides of rules and targets in the ledger; each holds until an operator clears it."""

from __future__ import annotations

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import overrides as statements
from eventbridge.model.rule_state import OperatorOverride, OperatorOverrides, OverrideKind


class Overrides(Database):
    """The part of the ledger about overrides."""

    def list_overrides(self) -> list[OperatorOverride]:
        """Return all overrides in order of rule, target and kind."""
        with self._reading() as connection:
            return [
                OperatorOverride(row.rule, row.target, row.kind, row.value, row.set_by, row.since)
                for row in connection.execute(statements.OVERRIDES)
            ]

    def overrides(self) -> OperatorOverrides:
        """Return the effect of overrides and failed expectations; a failed one holds its rule until it is released."""
        with self._reading() as connection:
            rows = connection.execute(statements.WHAT_HOLDS).all()
        values = {(row.rule, row.target, row.kind): row.value for row in rows if row.kind != statements.ON_HOLD}
        return OperatorOverrides(values, {row.rule for row in rows if row.kind == statements.ON_HOLD})

    def set_override(self, rule: str, target: str, kind: OverrideKind, value: str, set_by: str) -> bool:
        """Set an override from now on; return False, and change nothing, if it is already set."""
        now = self.now()
        row = {"rule": rule, "target": target, "kind": kind, "value": value, "set_by": set_by, "since": now}
        change = {"of_rule": rule, "of_target": target, "of_kind": kind, "to": value, "who": set_by, "now": now}
        with self._writing() as connection:
            if connection.execute(statements.NOTE_OVERRIDE, row).rowcount == 1:
                return True
            return connection.execute(statements.CHANGE_OVERRIDE, change).rowcount == 1

    def clear_override(self, rule: str, target: str, kind: OverrideKind) -> bool:
        """Clear an override; return False if there was none."""
        of = {"of_rule": rule, "of_target": target, "of_kind": kind}
        with self._writing() as connection:
            return connection.execute(statements.DROP_OVERRIDE, of).rowcount == 1
