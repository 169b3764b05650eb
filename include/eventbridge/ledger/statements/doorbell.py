"""Statements about the doorbell: when it looked last."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import doorbell

#: Notes the first look of an installation.
FIRST_LOOK = insert_or_skip(doorbell)

#: Notes a look.
LOOK = update(doorbell).values(looked_at=bindparam("now", type_=UtcTime))

#: When the doorbell looked last.
LAST_LOOK = select(doorbell.c.looked_at)
