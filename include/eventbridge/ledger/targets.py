"""How targets stand, and which runner delivers for them, in the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from eventbridge.ledger.database import Database
from eventbridge.ledger.records import TargetState, TargetStatus
from eventbridge.ledger.statements import runners as runner_statements
from eventbridge.ledger.statements import targets as statements


class Targets(Database):
    """The part of the ledger about the standing of targets."""

    def target_statuses(self) -> dict[tuple[str, str], TargetStatus]:
        """Return how targets stand, by (rule, target); one that is absent was never anything but ok."""
        with self._reading() as connection:
            return {
                (row.rule, row.target): TargetStatus(**row._mapping)
                for row in connection.execute(statements.TARGET_STATUSES)
            }

    def set_target_status(self, rule: str, target: str, state: TargetState, reason: str) -> None:
        """Note how a target stands and why; `since` changes only with the state. Holds and releases nothing."""
        noted = {"rule": rule, "target": target, "state": state, "reason": reason, "since": self.now()}
        change = {"of_rule": rule, "of_target": target, "to": state, "because": reason, "now": noted["since"]}
        with self._writing() as connection:
            if connection.execute(statements.NOTE_TARGET_STATUS, noted).rowcount == 0:
                connection.execute(statements.CHANGE_TARGET_STATUS, change)

    def runners_of_targets(self) -> dict[tuple[str, str], str]:
        """Return which runner last took a batch for each (rule, target)."""
        with self._reading() as connection:
            rows = connection.execute(runner_statements.RUNNERS_OF_TARGETS)
            return {(row.rule, row.target): row.runner for row in rows}

    def assign_targets(self, runner: str, targets: Iterable[tuple[str, str]]) -> None:
        """Note that a runner delivers for these (rule, target) from now on."""
        now = self.now()
        pairs = sorted(set(targets))
        rows = [{"rule": r, "target": t, "runner": runner, "worker": None, "assigned_at": now} for r, t in pairs]
        changes = [{"of_rule": r, "of_target": t, "to": runner, "now": now} for r, t in pairs]
        if rows:
            with self._writing() as connection:
                connection.execute(runner_statements.ASSIGN_TARGET, rows)
                connection.execute(runner_statements.REASSIGN_TARGET, changes)
