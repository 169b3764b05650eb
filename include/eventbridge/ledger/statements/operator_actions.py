"""Statements about actions requested through the API and the page."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Insert, Select, bindparam, delete, select, update

from eventbridge.ledger.tables import operator_action

#: Records an action and returns its number.
NOTE_ACTION = Insert(operator_action).returning(operator_action.c.action_id)

#: Records the response status of an action.
RECORD_ACTION_STATUS = (
    update(operator_action)
    .where(operator_action.c.action_id == bindparam("of_action"))
    .values(status=bindparam("now_status"))
)

#: Deletes the actions requested before a time.
DROP_ACTIONS = delete(operator_action).where(operator_action.c.at < bindparam("before"))


def actions(limit: int, *, older: bool) -> Select[Any]:
    """Return the query for the newest actions; `older`: only those older than one."""
    query = select(operator_action).order_by(operator_action.c.action_id.desc()).limit(limit)
    return query.where(operator_action.c.action_id < bindparam("before_action")) if older else query
