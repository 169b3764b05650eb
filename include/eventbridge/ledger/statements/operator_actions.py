"""Statements about what was asked for by the API and the page."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Insert, Select, bindparam, delete, select, update

from eventbridge.ledger.tables import operator_action

#: Notes an action, and gives its number.
NOTE_ACTION = Insert(operator_action).returning(operator_action.c.action_id)

#: Notes what response an action got.
RECORD_ACTION_STATUS = (
    update(operator_action)
    .where(operator_action.c.action_id == bindparam("of_action"))
    .values(status=bindparam("now_status"))
)

#: Forgets what was asked for before a time.
DROP_ACTIONS = delete(operator_action).where(operator_action.c.at < bindparam("before"))


def actions(limit: int, *, older: bool) -> Select[Any]:
    """Return the query for the newest actions; `older`: than one of them."""
    query = select(operator_action).order_by(operator_action.c.action_id.desc()).limit(limit)
    return query.where(operator_action.c.action_id < bindparam("before_action")) if older else query
