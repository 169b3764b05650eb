"""Rule sets in the ledger: the one that new batches take, and the changes of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import rules as statements
from eventbridge.model.rule_state import RuleChange, RulesInForce
from eventbridge.policy.operational_event import OperationalEvent


class Rules(Database):
    """The part of the ledger about rule sets."""

    def rules_in_force(self) -> RulesInForce | None:
        """Return the rule set that is in force; None before the first batch."""
        with self._reading() as connection:
            row = connection.execute(statements.RULES_IN_FORCE).first()
        return (
            None
            if row is None
            else RulesInForce(row.rule_set, row.runners, row.since, tuple(row.errors), row.streaming_task_seconds)
        )

    def put_rules_in_force(
        self,
        rule_set: str,
        runners: Mapping[str, str],
        before: str | None,
        changes: Mapping[str, str],
        streaming_task_seconds: Mapping[str, float] = MappingProxyType({}),
    ) -> bool:
        """Put a rule set in force instead of `before` (None: there was none), with the versions it changed by rule.

        `streaming_task_seconds`: the runners in streaming mode, with the seconds of a streaming task.
        Returns False, and changes nothing, if another one is in force by now.
        """
        now = self.now()
        first = {
            "singleton": 1,
            "rule_set": rule_set,
            "runners": dict(runners),
            "since": now,
            "errors": [],
            "streaming_task_seconds": dict(streaming_task_seconds),
        }
        change = {
            "before": before,
            "to": rule_set,
            "by_runner": dict(runners),
            "by_streaming_task": dict(streaming_task_seconds),
            "now": now,
        }
        rows = [{"rule": name, "version": to, "rule_set": rule_set, "at": now} for name, to in sorted(changes.items())]
        with self._writing() as connection:
            if before is None:
                done = connection.execute(statements.NOTE_RULES, first).rowcount == 1
            else:
                done = connection.execute(statements.CHANGE_RULES, change).rowcount == 1
            if done and rows:
                connection.execute(statements.NOTE_RULE_CHANGES, rows)
            return done

    def note_errors(self, errors: Sequence[str], told: Sequence[OperationalEvent] = ()) -> bool:
        """Record the errors of newer rule files and queue their operational events; return False if they were known."""
        with self._writing() as connection:
            changed = connection.execute(statements.NOTE_ERRORS, {"found": list(errors)}).rowcount == 1
            if changed:
                queue_events(connection, told)
            return changed

    def rule_changes(self, rule: str | None = None, limit: int = 1_000) -> list[RuleChange]:
        """Return the changes of a rule, or of all rules, newest first."""
        return [change for _, change in self.numbered_rule_changes(rule, limit)]

    def numbered_rule_changes(
        self, rule: str | None, limit: int, before: int | None = None
    ) -> list[tuple[int, RuleChange]]:
        """Return changes of a rule, or of all, with their numbers, newest first; only those before a number."""
        query = statements.rule_changes(rule, limit, before)
        with self._reading() as connection:
            return [
                (row.change_id, RuleChange(row.rule, row.version, row.rule_set, row.at))
                for row in connection.execute(query)
            ]
