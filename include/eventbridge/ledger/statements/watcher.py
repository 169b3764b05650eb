"""Statements about the watcher: the time of its last look."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import watcher

#: Notes the first look of an installation.
FIRST_LOOK = insert_or_skip(watcher)

#: Notes a look.
LOOK = update(watcher).values(looked_at=bindparam("now", type_=UtcTime))

#: The time of the watcher's last look.
LAST_LOOK = select(watcher.c.looked_at)
