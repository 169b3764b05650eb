"""Stores rules in the ledger: the rule set that new batches use, changes of each rule, and rules on hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import (
    NOW,
    NUMBERED,
    JsonText,
    Message,
    RowId,
    UtcTime,
    insert,
    insert_or_skip,
    metadata,
)
from eventbridge.ledger.operational_events import queue_events
from eventbridge.model.rule_state import RuleChange, RuleOnHold, RulesInForce
from eventbridge.policy.operational_event import OperationalEvent, version_on_hold_event

#: The one row that names the rule set for new batches.
rules_in_force = sa.Table(
    "rules_in_force",
    metadata,
    sa.Column("singleton", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rule_set", sa.Text, nullable=False),
    sa.Column("runners", JsonText, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("errors", JsonText, nullable=False),
    sa.Column("streaming_task_seconds", JsonText, nullable=False, server_default="{}"),
    sa.CheckConstraint("singleton = 1", name="singleton"),
)

#: The changes that each rule set made, one row per rule; version "" means that the rule was removed.
rule_change = sa.Table(
    "rule_change",
    metadata,
    sa.Column("change_id", RowId, primary_key=True),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("rule_set", sa.Text, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    **NUMBERED,
)
sa.Index("ix_rule_change_rule", rule_change.c.rule, rule_change.c.change_id)

rule_status = sa.Table(
    "rule_status",
    metadata,
    sa.Column("rule", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("reason", Message, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.CheckConstraint("state IN ('enabled', 'disabled', 'on_hold')", name="state"),
)

#: The rule set that is in force.
RULES_IN_FORCE = sa.select(
    rules_in_force.c.rule_set,
    rules_in_force.c.runners,
    rules_in_force.c.since,
    rules_in_force.c.errors,
    rules_in_force.c.streaming_task_seconds,
)

#: Puts a new rule set in force (compare and set).
CHANGE_RULES = (
    sa.update(rules_in_force)
    .where(rules_in_force.c.rule_set == sa.bindparam("before"))
    .values(
        rule_set=sa.bindparam("to"),
        runners=sa.bindparam("by_runner"),
        since=sa.bindparam("now"),
        errors=[],
        streaming_task_seconds=sa.bindparam("by_streaming_task"),
    )
)

#: Locks the rule set in force until the transaction ends, if it is the given one.
HOLD_RULES = (
    sa.update(rules_in_force)
    .where(rules_in_force.c.rule_set == sa.bindparam("of_rule_set"))
    .values(rule_set=rules_in_force.c.rule_set)
)

#: Records the errors in newer rule files, or that they no longer have any.
NOTE_ERRORS = (
    sa.update(rules_in_force)
    .where(rules_in_force.c.errors != sa.bindparam("found"))
    .values(errors=sa.bindparam("found"))
)


def select_changes(rule: str | None, limit: int, before: int | None) -> sa.Select[tuple[object, ...]]:
    """Return the query for changes of a rule or of all, newest first; `before` selects those with lower numbers."""
    found = sa.select(rule_change).order_by(rule_change.c.change_id.desc()).limit(limit)
    if before is not None:
        found = found.where(rule_change.c.change_id < before)
    return found if rule is None else found.where(rule_change.c.rule == rule)


#: The rules that are on hold.
RULES_ON_HOLD = sa.select(rule_status).where(rule_status.c.state == "on_hold").order_by(rule_status.c.rule)

#: Puts a rule on hold, or enables it again.
CHANGE_RULE = (
    sa.update(rule_status)
    .where(rule_status.c.rule == sa.bindparam("of_rule"))
    .values(
        state=sa.bindparam("to"),
        version=sa.bindparam("of_version"),
        reason=sa.bindparam("because", type_=rule_status.c.reason.type),
        since=NOW,
    )
)


class Rules(Aggregate):
    """Rule sets, and rules that are on hold."""

    def get_in_force(self) -> RulesInForce | None:
        """Return the rule set that is in force; None if none was ever put in force."""
        row = self._first(RULES_IN_FORCE)
        return (
            None
            if row is None
            else RulesInForce(row.rule_set, row.runners, row.since, tuple(row.errors), row.streaming_task_seconds)
        )

    def put_in_force(
        self,
        rule_set: str,
        runners: Mapping[str, str],
        before: str | None,
        changes: Mapping[str, str],
        streaming_task_seconds: Mapping[str, float] = MappingProxyType({}),
    ) -> bool:
        """Put a rule set in force instead of `before` (None for the first one), and record the changed rules.

        `changes` maps each changed rule to its new version, and `streaming_task_seconds` maps each runner in streaming
        mode to the duration of its streaming tasks. Returns False, and changes nothing, if `before` is no longer in
        force.
        """
        now = self._now()
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
                done = connection.execute(insert_or_skip(rules_in_force), first).rowcount == 1
            else:
                done = connection.execute(CHANGE_RULES, change).rowcount == 1
            if done and rows:
                connection.execute(insert(rule_change), rows)
            return done

    def record_errors(self, errors: Sequence[str], events: Sequence[OperationalEvent] = ()) -> bool:
        """Record the errors in newer rule files and queue operational events; return False if nothing has changed."""
        with self._writing() as connection:
            changed = connection.execute(NOTE_ERRORS, {"found": list(errors)}).rowcount == 1
            if changed:
                queue_events(connection, events)
            return changed

    def changes(self, rule: str | None = None, limit: int = 1_000) -> list[RuleChange]:
        """Return at most `limit` changes of a rule, or of all rules, newest first."""
        return [change for _, change in self.numbered_changes(rule, limit)]

    def numbered_changes(self, rule: str | None, limit: int, before: int | None = None) -> list[tuple[int, RuleChange]]:
        """Return at most `limit` changes of a rule, or of all rules, with their numbers, newest first.

        If `before` is set, it returns only changes with a lower number.
        """
        query = select_changes(rule, limit, before)
        return [(row.change_id, RuleChange(row.rule, row.version, row.rule_set, row.at)) for row in self._rows(query)]

    def hold(self, rule: str, version: str, reason: str) -> None:
        """Put this version of a rule on hold: it is not routed until an operator releases it. Other versions are."""
        self._record_status(rule, "on_hold", version, reason)

    def release(self, rule: str) -> None:
        """Release a rule, so that it is routed again."""
        self._record_status(rule, "enabled", "", "")

    def list_on_hold(self) -> dict[str, RuleOnHold]:
        """Return, by name, the rules that have a version on hold; the current version may be a different one."""
        return {row.rule: RuleOnHold(row.rule, row.version, row.reason, row.since) for row in self._rows(RULES_ON_HOLD)}

    def _record_status(self, rule: str, state: str, version: str, reason: str) -> None:
        now = self._now()
        noted = {"rule": rule, "state": state, "version": version, "reason": reason, "since": now}
        change = {"of_rule": rule, "to": state, "of_version": version, "because": reason, "now": now}
        with self._writing() as connection:
            on_hold = {(row.rule, row.version) for row in connection.execute(RULES_ON_HOLD)}
            if state == "on_hold" and (rule, version) not in on_hold:
                queue_events(connection, [version_on_hold_event(rule, version, reason, now)])
            if connection.execute(insert_or_skip(rule_status), noted).rowcount == 0:
                connection.execute(CHANGE_RULE, change)
