"""Statements about which runner delivers for which target."""

from __future__ import annotations

from sqlalchemy import Text, bindparam, or_, select, type_coerce, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import event_target_runner

#: The runner that delivers for each target, and where it left the target's rule.
ASSIGNMENTS = select(
    event_target_runner.c.rule,
    event_target_runner.c.target,
    event_target_runner.c.runner,
    event_target_runner.c.left_at,
)

_HAS_LEFT = type_coerce(event_target_runner.c.left_at, Text) != "[]"

#: Assigns a target to a runner, unless it is assigned.
ASSIGN_TARGET = insert_or_skip(event_target_runner)

#: Assigns to a runner a target that another runner has, or that it had left itself.
REASSIGN_TARGET = (
    update(event_target_runner)
    .where(
        event_target_runner.c.rule == bindparam("of_rule"),
        event_target_runner.c.target == bindparam("of_target"),
        or_(event_target_runner.c.runner != bindparam("to"), _HAS_LEFT),
    )
    .values(runner=bindparam("to"), assigned_at=bindparam("now", type_=UtcTime), left_at=())
)

#: Records where a runner leaves a target's rule; the first place counts.
LEAVE_TARGET = (
    update(event_target_runner)
    .where(
        event_target_runner.c.rule == bindparam("of_rule"),
        event_target_runner.c.target == bindparam("of_target"),
        event_target_runner.c.runner == bindparam("of_runner"),
        ~_HAS_LEFT,
    )
    .values(left_at=bindparam("left"))
)
