"""Reads the identity and the revision of a ledger, and migrates an older ledger to the newest revision."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.expression import column

from eventbridge.errors import LedgerError
from eventbridge.ledger.database import Database
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata
from eventbridge.ledger.engines.shown_url import redact_url

#: The one row with the id of this ledger; runners/<runner>.json in the store names it.
ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("singleton", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("ledger_id", sa.Text, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("serves_from", sa.Text, nullable=False, server_default=""),
    sa.CheckConstraint("singleton = 1", name="singleton"),
)

#: The identity of this ledger.
LEDGER_ID = sa.select(ledger.c.ledger_id)

#: The oldest revision whose versions of EventBridge can use the tables.
STORED_SERVES_FROM = sa.select(ledger.c.serves_from)

#: Serialises transactions that decide on rows which others may add at the same time.
TAKE_TURN = sa.select(ledger.c.singleton).with_for_update()

#: The newest revision in migrations/versions; a test proves it. It is repeated here so that a current ledger opens
#: without Alembic, whose import costs more than all other steps.
HEAD = "0001"

#: The oldest revision whose version works with the tables of HEAD. A migration that only adds (a table, an index, a
#: column with a default) does not change this. A migration that removes or changes something sets it to its own number.
#: It is released at least one version after the version that no longer needs the removed part (expand, then contract).
SERVES_FROM = "0001"

_MIGRATIONS = Path(__file__).parent / "migrations"
_REVISION_TABLE = "ledger_revision"
_STORED: sa.Select[Any] = sa.select(column("version_num")).select_from(sa.table(_REVISION_TABLE))


def bring_up_to_date(database: Database) -> None:
    """Create or migrate tables that are not current. Raises LedgerError if the engine does not do that on opening."""
    with database.reading() as connection:
        stored = _read_revision(connection)
    if stored == HEAD:
        return
    if not database.engine.migrates_when_opened:
        if stored is not None and stored > HEAD and _is_served(database):
            return
        _refuse_older(database, stored)
    migrate(database)


def _is_served(database: Database) -> bool:
    """Return whether this version can work with the tables that a newer version migrated."""
    with database.reading() as connection:
        return bool("" < connection.execute(STORED_SERVES_FROM).scalar_one() <= HEAD)


def migrate(database: Database) -> tuple[str | None, str]:
    """Create or migrate the tables; return the revision before (None without tables) and after."""
    now = database.now()
    with database.writing() as connection, database.engine.migrating(connection):
        stored = _read_revision(connection)  # under the lock, because another process may have been first
        if stored != HEAD:
            _refuse_foreign(database, connection, stored)
            _upgrade(connection)
            named = {"singleton": 1, "ledger_id": str(uuid.uuid4()), "created_at": now}
            connection.execute(insert_or_skip(ledger), named)
            connection.execute(sa.update(ledger).values(serves_from=SERVES_FROM))
        return stored, HEAD


def _refuse_older(database: Database, stored: str | None) -> None:
    """Raise LedgerError for a ledger that is older than this version, or that a newer version has migrated."""
    if stored is not None and stored not in _known_revisions():
        with database.reading() as connection:
            _refuse_foreign(database, connection, stored)
    shown = redact_url(database.engine.url)
    what = "has no tables yet" if stored is None else f"has revision {stored}, but this version needs {HEAD}"
    raise LedgerError(f"Ledger {shown} {what}. Run `eventbridge ledger migrate`, on one host; nothing was changed.")


def _refuse_foreign(database: Database, connection: sa.Connection, stored: str | None) -> None:
    shown = redact_url(database.engine.url)
    if stored is not None and stored not in _known_revisions():
        raise LedgerError(
            f"Ledger {shown} has revision {stored}, but this version of eventbridge supports only {HEAD} and older: "
            f"a newer version has migrated it. Install that version again; nothing was changed."
        )
    tables = sa.inspect(connection).get_table_names() if stored is None else []
    if tables:
        raise LedgerError(
            f"Database {shown} has another program's tables ({', '.join(sorted(tables)[:3])}). "
            f"Give the ledger a database of its own (EVENTBRIDGE_LEDGER_URL); nothing was changed."
        )


def _read_revision(connection: sa.Connection) -> str | None:
    """Return the revision on record, or None for a database without one."""
    if not sa.inspect(connection).has_table(_REVISION_TABLE):
        return None
    return connection.execute(_STORED).scalar()


def _known_revisions() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(_MIGRATIONS)).walk_revisions()}


def _upgrade(connection: sa.Connection) -> None:
    """Run the migrations that are missing, inside the transaction of `connection`."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "version_table": _REVISION_TABLE})
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, "head")
