"""Statements about which runner delivers for which target."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import event_target_runner

#: Which runner delivers for each target.
RUNNERS_OF_TARGETS = select(event_target_runner.c.rule, event_target_runner.c.target, event_target_runner.c.runner)

#: Gives a target to a runner, unless one has it.
ASSIGN_TARGET = insert_or_skip(event_target_runner)

#: Gives a target that another runner has to a runner.
REASSIGN_TARGET = (
    update(event_target_runner)
    .where(
        event_target_runner.c.rule == bindparam("of_rule"),
        event_target_runner.c.target == bindparam("of_target"),
        event_target_runner.c.runner != bindparam("to"),
    )
    .values(runner=bindparam("to"), assigned_at=bindparam("now", type_=UtcTime))
)
