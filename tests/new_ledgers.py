"""New ledgers from what the migrations made of the first of them: a hundredth of a second each, and not a fifth.

Serves every test that makes a ledger in its own process. What migrations do is tested where they run as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, event, inspect

from eventbridge.ledger import revision

Migrate = Callable[[Connection], None]
Statements = list[tuple[str, Any]]


class Remembered:
    """Migrates a ledger; a new one by the statements that make what the first new one of its kind of database was."""

    def __init__(self, migrate: Migrate) -> None:
        self.migrate = migrate
        self._known: dict[str, Statements] = {}

    def __call__(self, connection: Connection) -> None:
        """Bring the tables of a ledger to today's."""
        if inspect(connection).has_table(revision._REVISION_TABLE):
            self.migrate(connection)
            return
        kind = connection.dialect.name
        if kind not in self._known:
            self._known[kind] = self._dumped(connection) if kind == "sqlite" else self._watched(connection)
            return
        for statement, parameters in self._known[kind]:
            connection.exec_driver_sql(statement, parameters)

    def _dumped(self, connection: Connection) -> Statements:
        """Migrate, and return what makes the file again: half of what was run changed what had just been made."""
        self.migrate(connection)
        lines = connection.connection.driver_connection.iterdump()  # type: ignore[union-attr]
        return [(line, None) for line in lines if line not in ("BEGIN TRANSACTION;", "COMMIT;")]

    def _watched(self, connection: Connection) -> Statements:
        """Migrate, and return what was run."""
        ran: Statements = []

        def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if not statement.lstrip().startswith("SELECT"):
                ran.append((statement, parameters or None))

        event.listen(connection, "before_cursor_execute", note)
        try:
            self.migrate(connection)
        finally:
            event.remove(connection, "before_cursor_execute", note)
        return ran


def remember() -> None:
    """Have this process make its ledgers so."""
    if not isinstance(revision._upgrade, Remembered):
        revision._upgrade = Remembered(revision._upgrade)
