"""Operator actions, requested through the API and the page, in the ledger."""

from __future__ import annotations

from datetime import datetime

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import operator_actions as statements
from eventbridge.model.api import OperatorAction


class OperatorActions(Database):
    """The part of the ledger about requested actions."""

    def note_action(self, by: str, call: str, asked: str) -> int:
        """Record a requested action before it is carried out, and return its number."""
        row = {"at": self.now(), "by": by, "call": call, "asked": asked, "status": None}
        with self._writing() as connection:
            return int(connection.execute(statements.NOTE_ACTION, row).scalar_one())

    def record_action_status(self, action_id: int, status: int) -> None:
        """Record the response status of an action."""
        with self._writing() as connection:
            connection.execute(statements.RECORD_ACTION_STATUS, {"of_action": action_id, "now_status": status})

    def actions(self, limit: int, before: int | None = None) -> list[OperatorAction]:
        """Return at most `limit` actions, newest first; `before`: only those with a lower number."""
        values = {} if before is None else {"before_action": before}
        with self._reading() as connection:
            rows = connection.execute(statements.actions(limit, older=before is not None), values)
            return [OperatorAction(**row._mapping) for row in rows]

    def drop_actions(self, before: datetime) -> int:
        """Delete the actions requested before a time; return how many."""
        with self._writing() as connection:
            return connection.execute(statements.DROP_ACTIONS, {"before": before}).rowcount
