"""The revision of a ledger's tables, and how an older ledger is migrated to the newest one."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, inspect, select, table
from sqlalchemy.sql.expression import column

from eventbridge.errors import LedgerError
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import offsets as statements

#: The newest revision in migrations/versions; a test proves it. It is repeated here so that a current ledger opens
#: without Alembic, whose import costs more than all other steps.
HEAD = "0001"

#: The oldest revision whose version works with the tables of HEAD. A migration that only adds (a table, an index, a
#: column with a default) leaves it. A migration that removes or changes something sets it to its own number, and is
#: released at least one version after the one that no longer needs the removed thing: expand, then contract.
SERVES_FROM = "0001"

_MIGRATIONS = Path(__file__).parent / "migrations"
_REVISION_TABLE = "ledger_revision"
_STORED: Select[Any] = select(column("version_num")).select_from(table(_REVISION_TABLE))


class Revision(Database):
    """The part of the ledger that knows its own id and revision."""

    @property
    def ledger_id(self) -> str:
        """Return the UUID that this ledger got when it was created."""
        with self._reading() as connection:
            return str(connection.execute(statements.LEDGER_ID).scalar_one())

    def _bring_up_to_date(self) -> None:
        with self._reading() as connection:
            stored = _stored_revision(connection)
        if stored == HEAD:
            return
        if not self._engine.migrates_when_opened:
            if stored is not None and stored > HEAD and self._is_served():
                return
            self._refuse_older(stored)
        self._migrate()

    def _is_served(self) -> bool:
        """Return whether this version can work with the tables that a newer version migrated."""
        with self._reading() as connection:
            return bool("" < connection.execute(statements.SERVES_FROM).scalar_one() <= HEAD)

    def _migrate(self) -> tuple[str | None, str]:
        now = self.now()
        with self._writing() as connection, self._engine.migrating(connection):
            stored = _stored_revision(connection)  # under the lock: another process may have been first
            if stored != HEAD:
                self._refuse_foreign(connection, stored)
                _upgrade(connection)
                named = {"singleton": 1, "ledger_id": str(uuid.uuid4()), "created_at": now}
                connection.execute(statements.NAME_LEDGER, named)
                connection.execute(statements.NOTE_SERVES_FROM, {"revision": SERVES_FROM})
            return stored, HEAD

    def _refuse_older(self, stored: str | None) -> None:
        """Raise LedgerError: the ledger is older than this version, or newer, which has its own message."""
        if stored is not None and stored not in _known_revisions():
            with self._reading() as connection:
                self._refuse_foreign(connection, stored)
        shown = self._engine.url.render_as_string(hide_password=True)
        what = "has no tables yet" if stored is None else f"has revision {stored}, this version needs {HEAD}"
        raise LedgerError(f"Ledger {shown} {what}. Run `eventbridge ledger migrate`, on one host; nothing was changed.")

    def _refuse_foreign(self, connection: Connection, stored: str | None) -> None:
        shown = self._engine.url.render_as_string(hide_password=True)
        if stored is not None and stored not in _known_revisions():
            raise LedgerError(
                f"Ledger {shown} has revision {stored}, this version of eventbridge knows none after {HEAD}: "
                f"a newer version has migrated it. Install that version again; nothing was changed."
            )
        tables = inspect(connection).get_table_names() if stored is None else []
        if tables:
            raise LedgerError(
                f"Database {shown} has another program's tables ({', '.join(sorted(tables)[:3])}). "
                f"Give the ledger a database of its own (EVENTBRIDGE_LEDGER_URL); nothing was changed."
            )


def _stored_revision(connection: Connection) -> str | None:
    """Return the revision on record, None for a database without one."""
    if not inspect(connection).has_table(_REVISION_TABLE):
        return None
    return connection.execute(_STORED).scalar()


def _known_revisions() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}


def _upgrade(connection: Connection) -> None:
    """Run the migrations that are missing, inside the transaction of `connection`."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "version_table": _REVISION_TABLE})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, "head")
