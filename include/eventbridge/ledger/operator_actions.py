"""What was asked for by the API and the page, in the ledger."""

from __future__ import annotations

from datetime import datetime

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import operator_actions as statements
from eventbridge.model.operator_action import OperatorAction


class OperatorActions(Database):
    """The part of the ledger about who asked for what."""

    def note_action(self, by: str, call: str, asked: str) -> int:
        """Note what somebody asks for, before it is done, and return its number."""
        row = {"at": self.now(), "by": by, "call": call, "asked": asked, "status": None}
        with self._writing() as connection:
            return int(connection.execute(statements.NOTE_ACTION, row).scalar_one())

    def record_action_status(self, action_id: int, status: int) -> None:
        """Note what response an action got."""
        with self._writing() as connection:
            connection.execute(statements.RECORD_ACTION_STATUS, {"of_action": action_id, "now_status": status})

    def actions(self, limit: int, before: int | None = None) -> list[OperatorAction]:
        """Return at most so many actions, the newest first; `before`: older than that of this number."""
        values = {} if before is None else {"before_action": before}
        with self._reading() as connection:
            rows = connection.execute(statements.actions(limit, older=before is not None), values)
            return [OperatorAction(**row._mapping) for row in rows]

    def drop_actions(self, before: datetime) -> int:
        """Forget what was asked for before a time; returns how many that are."""
        with self._writing() as connection:
            return connection.execute(statements.DROP_ACTIONS, {"before": before}).rowcount
