"""Copies a ledger into another database, row by row, for example from the file of one host to a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.expression import column

from eventbridge.errors import LedgerError, UserError
from eventbridge.ledger.database import Database
from eventbridge.ledger.definitions import RowId, metadata
from eventbridge.ledger.engines.shown_url import redact_url
from eventbridge.ledger.ledger import Ledger
from eventbridge.ledger.revision import ledger as identity
from eventbridge.progress import Progress, unreported

_ROWS_AT_ONCE = 1_000


def copy_ledger(from_url: str, to_url: str, progress: Progress = unreported) -> dict[str, int]:
    """Copy every row of a ledger into one that is empty, and return how many rows each table has, by name.

    `progress` gets the number of rows.

    The copy keeps the ledger's id and continues the numbering of rows. It is a consistent snapshot, and complete or
    absent. No process can write to a SQLite file while it is copied. A server accepts writes during the copy, and the
    copy does not contain commits made after it began, so end the processes that use the server first. Raises UserError
    if both URLs name the same ledger or the destination is not empty, and LedgerError if a ledger cannot be opened, the
    row counts differ or a database fails.
    """
    source, destination = Ledger.open(from_url), Ledger.open(to_url)
    try:
        if source.id == destination.id:
            raise UserError("Both URLs name the same ledger: there is nothing to copy.")
        # The source is not changed. A writer's transaction prevents others from changing a SQLite file. On a server it
        # would not, and each of its statements would read a different snapshot; there, only a reader's transaction
        # reads one snapshot throughout.
        reading = source.database.reading() if source.database.engine.spans_hosts else source.database.writing()
        with reading as there, destination.database.writing() as here:
            _refuse_nonempty(here, destination.database)
            here.execute(identity.delete())
            total, copied = sum(_count(each, there) for each in metadata.sorted_tables), 0

            def add_copied(rows: int) -> None:
                nonlocal copied
                copied += rows
                progress(copied, total)

            counts = {each.name: _copy(each, there, here, add_copied) for each in metadata.sorted_tables}
            for each in metadata.sorted_tables:
                _continue_numbering(each, source.database, there, destination.database, here)
            return counts
    finally:
        source.close()
        destination.close()


def _refuse_nonempty(here: sa.Connection, destination: Database) -> None:
    full = [each.name for each in metadata.sorted_tables if each is not identity and _count(each, here)]
    if full:
        shown = redact_url(destination.engine.url)
        raise UserError(
            f"Ledger {shown} is not empty: it has rows in {', '.join(full)}. Copy into a new database that "
            "only `eventbridge ledger migrate` has prepared. Nothing was changed."
        )


def _copy(whole: sa.Table, there: sa.Connection, here: sa.Connection, add_copied: Callable[[int], None]) -> int:
    rows = _rows(whole)
    for some in there.execute(sa.select(rows)).mappings().partitions(_ROWS_AT_ONCE):
        here.execute(sa.insert(rows), [dict(row) for row in some])
        add_copied(len(some))
    read, written = _count(whole, there), _count(whole, here)
    if read != written:
        raise LedgerError(f"Table {whole.name} has {read:,} rows and its copy {written:,}; nothing was copied.")
    return written


def _rows(whole: sa.Table) -> Any:
    """Return a table whose columns return their values as stored, except that booleans are converted."""
    columns = (column(c.name, c.type) if isinstance(c.type, sa.Boolean) else column(c.name) for c in whole.columns)
    return sa.table(whole.name, *columns)


def _count(whole: sa.Table, connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(whole)).scalar_one())


def _continue_numbering(
    whole: sa.Table, source: Database, there: sa.Connection, destination: Database, here: sa.Connection
) -> None:
    for key in whole.columns:
        if key.type is RowId:
            last = source.engine.last_number(there, whole.name, key.name)
            destination.engine.count_on(here, whole.name, key.name, last)
