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
