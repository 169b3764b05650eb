"""Statements about the rule set in force, and the changes by rule sets."""

from __future__ import annotations

from sqlalchemy import Select, bindparam, select, update

from eventbridge.ledger.statements.inserts import insert, insert_or_skip
from eventbridge.ledger.tables import rule_change, rules_in_force

#: The rule set that is in force.
RULES_IN_FORCE = select(
    rules_in_force.c.rule_set,
    rules_in_force.c.runners,
    rules_in_force.c.since,
    rules_in_force.c.errors,
    rules_in_force.c.streaming_task_seconds,
)

#: Adds the first rule set.
NOTE_RULES = insert_or_skip(rules_in_force)

#: Puts another rule set in force: compare and set.
CHANGE_RULES = (
    update(rules_in_force)
    .where(rules_in_force.c.rule_set == bindparam("before"))
    .values(
        rule_set=bindparam("to"),
        runners=bindparam("by_runner"),
        since=bindparam("now"),
        errors=[],
        streaming_task_seconds=bindparam("by_streaming_task"),
    )
)

#: Keeps a rule set in force until the transaction ends, if it is in force.
HOLD_RULES = (
    update(rules_in_force)
    .where(rules_in_force.c.rule_set == bindparam("of_rule_set"))
    .values(rule_set=rules_in_force.c.rule_set)
)

#: Records the errors of newer rule files, or that they have none any more.
NOTE_ERRORS = (
    update(rules_in_force).where(rules_in_force.c.errors != bindparam("found")).values(errors=bindparam("found"))
)

#: Records the changes of a rule set.
NOTE_RULE_CHANGES = insert(rule_change)


def rule_changes(rule: str | None, limit: int, before: int | None) -> Select[tuple[object, ...]]:
    """Return the query for changes of a rule, or of all, the newest first; `before`: of those with a lower number."""
    found = select(rule_change).order_by(rule_change.c.change_id.desc()).limit(limit)
    if before is not None:
        found = found.where(rule_change.c.change_id < before)
    return found if rule is None else found.where(rule_change.c.rule == rule)
