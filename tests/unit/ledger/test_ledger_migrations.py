"""Migrations: they create the tables that the statements use, bring older ledgers up to date, and are atomic."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import new_ledgers
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from contracts.ledger_samples import a_batch
from sqlalchemy import create_engine
from unit.ledger.ledger_file import indexes_of, url
from unit.ledger.newer_revision import add_revision

from eventbridge import fault_points
from eventbridge.errors import LedgerError
from eventbridge.ledger import Ledger, migrations, revision
from eventbridge.ledger.definitions import metadata
from eventbridge.ledger.revision import HEAD

pytestmark = pytest.mark.usefixtures("migrated")


def test_the_migrations_make_the_tables_that_the_statements_use(file: Path) -> None:
    """Alembic finds no difference between a migrated ledger and tables.py, conditions of indexes included."""
    engine = create_engine(url(file))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": "ledger_revision"}
        )
        differences = compare_metadata(context, metadata)
    made = indexes_of(file)
    engine.dispose()
    whole = file.with_name("tables.sqlite")
    engine = create_engine(url(whole))
    metadata.create_all(engine)
    engine.dispose()

    assert differences == []
    assert made == indexes_of(whole)


def test_ledgers_of_tests_are_what_migrations_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are made by what was run for the first one are the same, but for their ids and times."""
    remembered = new_ledgers.Remembered(revision._upgrade)
    files = [tmp_path / f"{name}.sqlite" for name in ("migrated", "first", "second")]
    for file, made_by in zip(files, (revision._upgrade, remembered, remembered), strict=True):
        monkeypatch.setattr(revision, "_upgrade", made_by)
        Ledger.open(url(file)).close()

    migrated, first, second = (whole_text_of(file) for file in files)
    assert migrated == first == second
    assert len(migrated) > 70


def whole_text_of(file: Path) -> list[str]:
    """Return the SQL that makes a database again, without the row that names the ledger."""
    connection = sqlite3.connect(file)
    lines = [line for line in connection.iterdump() if not line.startswith('INSERT INTO "ledger" ')]
    connection.close()
    return lines


def test_the_known_head_is_the_newest_migration() -> None:
    """What opening compares with is what the migrations end in, of which there is one line."""
    assert migrations.__file__ is not None
    script = ScriptDirectory(str(Path(migrations.__file__).parent))

    assert script.get_heads() == [HEAD]


def test_an_older_ledger_is_migrated_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id and its rows stay, and the migrations that it lacks are run."""
    file = tmp_path / "old.sqlite"
    old = Ledger.open(url(file))
    ledger_id = old.id
    assert old.batches.plan(a_batch(), [])
    old.close()
    add_revision(tmp_path / "migrations", monkeypatch)

    ledger = Ledger.open(url(file))

    assert (ledger.id, ledger.batches.get("batch-1").state) == (ledger_id, "planned")
    ledger.close()
    assert "newer" in columns_of(file, "batch")


def columns_of(file: Path, table: str) -> list[str]:
    """Return the names of a table's columns."""
    connection = sqlite3.connect(file)
    names = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    connection.close()
    return names


def test_a_newer_ledger_is_refused(file: Path) -> None:
    """An unknown revision is reported with the remedy, and the ledger is left as it is."""
    connection = sqlite3.connect(file)
    connection.execute("UPDATE ledger_revision SET version_num = '0999'")
    connection.commit()

    with pytest.raises(LedgerError, match=r"revision 0999.*newer version.*Install that version"):
        Ledger.open(url(file))
    assert connection.execute("SELECT version_num FROM ledger_revision").fetchall() == [("0999",)]
    connection.close()


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A ledger whose making is interrupted is an empty file, and is made by the next to open it."""
    file = tmp_path / "ledger.sqlite"

    def stop(point: str) -> None:
        if point == "ledger.commit":
            raise KeyboardInterrupt

    fault_points.install(stop)
    with pytest.raises(KeyboardInterrupt):
        Ledger.open(url(file))
    fault_points.install(None)

    assert indexes_of(file) == {}
    assert len(Ledger.open(url(file)).id) == 36
