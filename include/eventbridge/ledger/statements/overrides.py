"""Statements about overrides of rules and targets."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, literal, select, union_all, update

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import expectation_hold, override

_ONE = (
    (override.c.rule == bindparam("of_rule"))
    & (override.c.target == bindparam("of_target"))
    & (override.c.kind == bindparam("of_kind"))
)

#: All that holds.
OVERRIDES = select(override).order_by(override.c.rule, override.c.target, override.c.kind)

#: What `kind` is, in the next query, of a rule that is on hold as an expectation failed.
ON_HOLD = "on_hold"

#: All that decides about deliveries, in one query: overrides, and the rules that are on hold.
WHAT_HOLDS = union_all(
    select(override.c.rule, override.c.target, override.c.kind, override.c.value),
    select(expectation_hold.c.rule, literal(""), literal(ON_HOLD), literal("")),
)

#: Notes a new override.
NOTE_OVERRIDE = insert_or_skip(override)

#: Notes another value of an override.
CHANGE_OVERRIDE = (
    update(override)
    .where(_ONE, override.c.value != bindparam("to"))
    .values(value=bindparam("to"), set_by=bindparam("who"), since=bindparam("now"))
)

#: Forgets what an operator took back.
DROP_OVERRIDE = delete(override).where(_ONE)
