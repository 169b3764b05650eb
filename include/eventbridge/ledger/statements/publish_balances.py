"""Statements about what owners may publish."""

from __future__ import annotations

from sqlalchemy import Float, bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import publish_balance

_OWN = publish_balance.c.owner == bindparam("of_owner")

#: What an owner may publish, which it then does until the transaction ends.
BALANCE = select(publish_balance.c.events, publish_balance.c.at).where(_OWN).with_for_update()

#: Notes what an owner may publish, unless something is noted already.
NOTE_BALANCE = insert_or_skip(publish_balance)

#: Changes what an owner may publish.
CHANGE_BALANCE = (
    update(publish_balance)
    .where(_OWN)
    .values(events=bindparam("left", type_=Float), at=bindparam("now", type_=UtcTime))
)
