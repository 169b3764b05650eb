"""Statements about what operators said of rules and targets."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, literal, select, union_all, update

from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import expectation_hold, operator_state

_ONE = (
    (operator_state.c.rule == bindparam("of_rule"))
    & (operator_state.c.target == bindparam("of_target"))
    & (operator_state.c.word == bindparam("of_word"))
)

#: All that holds.
OPERATOR_STATES = select(operator_state).order_by(operator_state.c.rule, operator_state.c.target, operator_state.c.word)

#: What `word` is, in the next query, of a rule that is on hold as an expectation failed.
ON_HOLD = "on_hold"

#: All that decides about deliveries, in one query: what was said, and the rules that are on hold.
WHAT_HOLDS = union_all(
    select(operator_state.c.rule, operator_state.c.target, operator_state.c.word, operator_state.c.value),
    select(expectation_hold.c.rule, literal(""), literal(ON_HOLD), literal("")),
)

#: Notes what was not said before.
NOTE_OPERATOR_STATE = insert_or_skip(operator_state)

#: Notes another value of what was said before.
CHANGE_OPERATOR_STATE = (
    update(operator_state)
    .where(_ONE, operator_state.c.value != bindparam("to"))
    .values(value=bindparam("to"), said_by=bindparam("who"), since=bindparam("now"))
)

#: Forgets what an operator took back.
DROP_OPERATOR_STATE = delete(operator_state).where(_ONE)
