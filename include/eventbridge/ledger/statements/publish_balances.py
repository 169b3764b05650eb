"""Statements about publish balances of owners."""

from __future__ import annotations

from sqlalchemy import Float, bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import publish_balance

_OWN = publish_balance.c.owner == bindparam("of_owner")

#: The balance of an owner, locked until the transaction ends.
BALANCE = select(publish_balance.c.events, publish_balance.c.at).where(_OWN).with_for_update()

#: Adds the balance of an owner, unless it has one.
NOTE_BALANCE = insert_or_skip(publish_balance)

#: Changes the balance of an owner.
CHANGE_BALANCE = (
    update(publish_balance)
    .where(_OWN)
    .values(events=bindparam("left", type_=Float), at=bindparam("now", type_=UtcTime))
)
