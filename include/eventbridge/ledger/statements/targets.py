"""Statements about how targets stand."""

from __future__ import annotations

from sqlalchemy import bindparam, case, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import target_status

#: How the targets stand that were ever anything but ok.
TARGET_STATUSES = select(target_status).order_by(target_status.c.rule, target_status.c.target)

#: Notes how a target stands, unless something is noted already.
NOTE_TARGET_STATUS = insert_or_skip(target_status)

#: Changes how a target stands; `since` changes only with the state.
CHANGE_TARGET_STATUS = (
    update(target_status)
    .where(target_status.c.rule == bindparam("of_rule"), target_status.c.target == bindparam("of_target"))
    .values(
        state=bindparam("to"),
        reason=bindparam("because", type_=target_status.c.reason.type),
        since=case(
            (target_status.c.state == bindparam("to"), target_status.c.since),
            else_=bindparam("now", type_=UtcTime),
        ),
    )
)
