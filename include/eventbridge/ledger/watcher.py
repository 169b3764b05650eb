"""The watcher in the ledger: the time of its last look, by which others know whether it is alive."""

from __future__ import annotations

from datetime import datetime

from eventbridge.ledger.database import Database
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.ledger.statements import watcher as statements


class WatcherLooks(Database):
    """The part of the ledger about the watcher."""

    def note_look(self) -> None:
        """Record that the watcher has looked at every bus now."""
        now = self.now()
        with self._writing() as connection:
            if connection.execute(statements.LOOK, {"now": now}).rowcount == 0:
                connection.execute(statements.FIRST_LOOK, {"singleton": 1, "looked_at": now})

    def last_look(self) -> datetime | None:
        """Return when the watcher last looked at the buses; None if it never did."""
        with self._reading() as connection:
            return connection.execute(statements.LAST_LOOK).scalar()


def last_look(engine: LedgerEngine, limit_seconds: float) -> datetime | None:
    """Return when the watcher of a ledger last looked at the buses; None if it never did.

    It waits at most `limit_seconds`, only reads, and neither creates nor migrates a ledger. Raises FileNotFoundError if
    there is no ledger, and the exceptions of SQLAlchemy.
    """
    with engine.reader(limit_seconds).connect() as connection:
        return connection.execute(statements.LAST_LOOK).scalar()
