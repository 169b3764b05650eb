"""Statements about the watcher: when it looked last."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import watcher

#: Notes the first look of an installation.
FIRST_LOOK = insert_or_skip(watcher)

#: Notes a look.
LOOK = update(watcher).values(looked_at=bindparam("now", type_=UtcTime))

#: When the watcher looked last.
LAST_LOOK = select(watcher.c.looked_at)
