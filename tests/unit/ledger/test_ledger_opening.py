"""Opening a ledger: made, migrated, refused; and what a person is told when it cannot be used."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from contracts.ledger_samples import Clock, a_batch, a_file
from sqlalchemy import create_engine

from eventbridge import fault_points
from eventbridge.decision.breaker import Tally
from eventbridge.errors import LedgerError, SettingsError
from eventbridge.event.ids import Fingerprint
from eventbridge.ledger import Ledger, migrations
from eventbridge.ledger.engines.registry import engine_of
from eventbridge.ledger.remedies import explain
from eventbridge.ledger.revision import HEAD
from eventbridge.ledger.tables import metadata
from eventbridge.model.landed import LandedRange
from eventbridge.model.queue import Queue
from eventbridge.model.routed import RoutedPiece, RoutedShare, RoutedSlice, SplitSlice, UnroutableEvent

NOBODY = 65534


def url(file: Path) -> str:
    """Return the URL of a ledger file."""
    return f"sqlite:///{file}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a ledger that was made and closed."""
    made = tmp_path / "ledger.sqlite"
    Ledger.open(url(made), Clock()).close()
    return made


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


def indexes_of(file: Path) -> dict[str, str]:
    """Return the SQL of every index of a database by name."""
    connection = sqlite3.connect(file)
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    found = dict(connection.execute(query).fetchall())
    connection.close()
    return found


def test_the_known_head_is_the_newest_migration() -> None:
    """What opening compares with is what the migrations end in, of which there is one line."""
    assert migrations.__file__ is not None
    script = ScriptDirectory(str(Path(migrations.__file__).parent))

    assert script.get_heads() == [HEAD]


def made_at(revision: str, file: Path, *statements: str) -> Path:
    """Make a ledger as it was at a revision, with these rows."""
    assert migrations.__file__ is not None
    engine = create_engine(url(file))
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection, "version_table": "ledger_revision"})
        config.set_main_option("script_location", str(Path(migrations.__file__).parent))
        command.upgrade(config, revision)
        connection.exec_driver_sql("INSERT INTO ledger VALUES (1, 'the-id', 0)")
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()
    return file


def test_a_ledger_of_the_first_revision_goes_on(tmp_path: Path) -> None:
    """Its id and its offsets stay; on which log they count is not known yet."""
    offset_of_7 = "INSERT INTO consumer_offset VALUES ('flights', 'bus', 'placed', '', 0, 7, '', 0)"
    old = made_at("0001", tmp_path / "old.sqlite", offset_of_7)

    ledger = Ledger.open(url(old))
    (offset,) = ledger.consumer_offsets()

    assert ledger.ledger_id == "the-id"
    assert (offset.group, offset.offset, offset.bus_identity) == ("flights", 7, "")
    ledger.close()


def test_a_ledger_from_before_pauses_goes_on(tmp_path: Path) -> None:
    """Its targets stand as they stood, none is paused, and one that asks for a pause now has it."""
    old = made_at(
        "0010",
        tmp_path / "old.sqlite",
        "INSERT INTO target_status (rule, target, state, reason, since, until, good, slow)"
        " VALUES ('orders', 'crm', 'degraded', 'it failed', 5000000, 6000000, 2, 0)",
    )

    ledger = Ledger.open(url(old), Clock())
    [before] = ledger.target_statuses().values()
    until = ledger.now() + timedelta(seconds=60)
    ledger.note_attempts([Tally("orders", "crm", paused_until=until)])
    [after] = ledger.target_statuses().values()

    assert (before.state, before.reason, before.good, before.paused_until) == ("degraded", "it failed", 2, None)
    assert after == replace(before, paused_until=until)
    ledger.close()


def test_a_ledger_from_before_records_goes_on(tmp_path: Path) -> None:
    """What buffer and route recorded as they pleased is the same, as records; of other files nothing was recorded."""
    routed = '"matched": {"late/crm": [2, 18446744073709551615, 3]}, "failed": {"late/crm": 1}, "failed_rows": "1"'
    piece = '["rules.high", 750, "late", "crm", "0", 1, 90, 3]'
    of_slice = '"slice": {"file": "f", "row_from": 0, "row_to": 4}'
    share = '{"rule": "late", "done": [["f", "1"]], "left": [["f", "2-3"]], "reason": "Budget", "rendered": 1}'
    old = {
        ("buffer", "a"): '{"topic": "t", "broker": "", "queue_id": 1, "start": 3, "end": 9, "read": 4, "valid": 2, '
        '"duplicate": 1, "malformed": 1, "bytes": 70, "gaps": [[5, 7]]}',
        ("buffer", "redrive"): '{"gaps": [], "malformed": 0}',
        ("delivery", "a"): f'{{{of_slice}, "rows_in": 2, {routed}, "pieces": [{piece}], "reference_matched": 1, '
        '"reference_rendered": 2, "clears": 3, "survivors": {"late": "1-2"}}',
        ("delivery", "b"): f'{{{of_slice}, "rows_in": 0, "matched": {{}}, "failed": {{}}, "failed_rows": "", '
        '"pieces": [], "reference_matched": 7}',
        ("delivery", "c"): f'{{"rows_in": 0, {routed}, "pieces": [], "failure_reasons": {{"RouteFailed": "1"}}, '
        f'"error": "loops", "share": {share}}}',
        ("delivery", "d"): '{"rows_in": 0, "matched": {}, "pieces": [], "split": [[0, 2], [2, 4]]}',
        ("delivery", "e"): '{"matched": {}, "unroutable": [{"file": "f", "row": 2, "error": "it \\u00e9nds"}]}',
        ("delivery", "redrive"): '{"rows_in": 0, "matched": {}, "pieces": []}',
        ("outcome", "a"): "{}",
    }
    ledger_file = tmp_path / "old.sqlite"
    made_at(
        "0012",
        ledger_file,
        "INSERT INTO batch (batch_id, kind, runner, bus, state, rule_set, planned_at, replay_id)"
        " VALUES ('b', 'normal', 'r', 'b', 'routed', 'cafe', 0, '')",
    )
    connection = sqlite3.connect(ledger_file)
    connection.executemany(
        "INSERT INTO batch_file (batch_id, kind, key, path, rows, detail) VALUES ('b', ?, ?, 'p', 4, ?)",
        [(*name, detail) for name, detail in old.items()],
    )
    connection.commit()
    connection.close()

    ledger = Ledger.open(url(ledger_file))
    found = {kind: [file.detail for file in ledger.files("b", kind)] for kind in ("buffer", "delivery", "outcome")}
    ledger.close()

    matched = {"late/crm": Fingerprint(2, 2**64 - 1, 3)}
    a_piece = RoutedPiece("rules.high", 750, "late", "crm", "0", 1, 90, 3)
    landed = LandedRange(
        queue=Queue("t", "", 1),
        start=3,
        end=9,
        read=4,
        valid=2,
        duplicate=1,
        malformed=1,
        size=70,
        gaps=((5, 7),),
    )
    assert found["buffer"] == [landed, None]
    assert found["delivery"] == [
        RoutedSlice(
            file="f",
            row_from=0,
            row_to=4,
            rows_in=2,
            matched=matched,
            failed={"late/crm": 1},
            failed_rows="1",
            pieces=(a_piece,),
            reference_matched=1,
            reference_rendered=2,
            clears=3,
            survivors={"late": "1-2"},
        ),
        RoutedSlice(file="f", row_from=0, row_to=4),
        RoutedShare(
            rule="late",
            matched=matched,
            failed={"late/crm": 1},
            failed_rows="1",
            done=(("f", "1"),),
            left=(("f", "2-3"),),
            reason="Budget",
            rendered=1,
            failure_reasons={"RouteFailed": "1"},
            error="loops",
        ),
        SplitSlice(((0, 2), (2, 4))),
        UnroutableEvent("f", 2, "it énds"),
        None,
    ]
    assert found["outcome"] == [None]


def test_a_ledger_of_today_opens_without_alembic(file: Path) -> None:
    """Opening an up-to-date ledger imports no migration tool and takes at most 30 ms of this process."""
    program = (
        "import sys, time\n"
        "from eventbridge.ledger import Ledger\n"
        "taken = []\n"
        "for _ in range(5):\n"
        "    start = time.process_time()\n"
        f"    Ledger.open({url(file)!r}).close()\n"
        "    taken.append(time.process_time() - start)\n"
        "print(min(taken), 'alembic' in sys.modules)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert answer[1] == "False"
    assert float(answer[0]) <= 0.030


def test_a_ledger_is_durable_by_its_settings(file: Path) -> None:
    """Commits wait for the disk, references are checked, and readers do not wait for writers."""
    ledger = Ledger.open(url(file))
    with ledger._reading() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    ledger.close()

    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_newer_ledger_is_refused(file: Path) -> None:
    """A revision that this version does not know is told with the remedy, and the ledger is left as it is."""
    connection = sqlite3.connect(file)
    connection.execute("UPDATE ledger_revision SET version_num = '0999'")
    connection.commit()

    with pytest.raises(LedgerError, match=r"revision 0999.*newer version.*Install that version"):
        Ledger.open(url(file))
    assert connection.execute("SELECT version_num FROM ledger_revision").fetchall() == [("0999",)]
    connection.close()


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A database with other tables, Airflow's for one, is not made a ledger."""
    file = tmp_path / "airflow.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE dag (dag_id TEXT)")

    with pytest.raises(LedgerError, match=r"another program's tables \(dag\).*of its own"):
        Ledger.open(url(file))
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("dag",)]
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
    assert len(Ledger.open(url(file)).ledger_id) == 36


def test_two_ledgers_have_two_ids(tmp_path: Path) -> None:
    """A ledger made again is not taken for the one that was lost."""
    ids = {Ledger.open(url(tmp_path / name)).ledger_id for name in ("a.sqlite", "b.sqlite")}

    assert len(ids) == 2


def test_a_relative_ledger_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that changes its folder goes on with the ledger it opened."""
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.open("sqlite:///ledger.sqlite")
    was = ledger.ledger_id
    ledger.close()
    monkeypatch.chdir(tmp_path / "later")

    assert ledger.ledger_id == was
    assert ledger.plan_batch(a_batch(), [])
    assert list((tmp_path / "later").iterdir()) == []
    ledger.close()


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        pytest.param("nonsense", "cannot be read as one", id="no-url"),
        pytest.param("postgresql://me:secret@host:port/db", "cannot be read as one", id="bad-port"),
        pytest.param("mysql://me:secret@host/db", r"mysql://me:\*\*\*@host/db", id="other-database"),
        pytest.param("sqlite://", "in memory forgets", id="memory"),
        pytest.param("sqlite:///:memory:", "in memory forgets", id="memory-by-name"),
    ],
)
def test_a_url_that_names_no_ledger_is_told(bad: str, told: str) -> None:
    """What is no URL, no supported database or no durable one is refused, without showing its password."""
    with pytest.raises(SettingsError, match=told) as refused:
        Ledger.open(bad)

    assert "secret" not in str(refused.value)
    assert "Set EVENTBRIDGE_LEDGER_URL to sqlite:///<file>" in str(refused.value)


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    """The remedy is the command that makes the folder; it is not made in passing: an empty ledger is no small thing."""
    with pytest.raises(LedgerError, match=rf"mkdir -p {tmp_path}/not/there"):
        Ledger.open(url(tmp_path / "not" / "there" / "ledger.sqlite"))

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_told_and_kept(tmp_path: Path) -> None:
    """A text file in the ledger's place is named and stays as it is."""
    file = tmp_path / "ledger.sqlite"
    file.write_text("this is not a ledger\n" * 100)

    with pytest.raises(LedgerError, match=rf"file is not a database. {file} is not a ledger"):
        Ledger.open(url(file))
    assert file.read_text() == "this is not a ledger\n" * 100


@contextmanager
def without_privileges() -> Iterator[None]:
    """Run as a user who is not root, who may write anywhere."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture
def others_folder() -> Iterator[Path]:
    """Return a folder with a ledger that everybody may read and nobody may write to."""
    folder = Path(tempfile.mkdtemp())
    Ledger.open(url(folder / "ledger.sqlite")).close()
    for path in (*folder.iterdir(), folder):
        path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH | (0o111 if path.is_dir() else 0))
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_folder_that_may_not_be_written_to_is_told(others_folder: Path) -> None:
    """The remedy names file and folder, for a ledger that is there and for one that would be made."""
    with without_privileges():
        for name in ("ledger.sqlite", "new.sqlite"):
            with pytest.raises(LedgerError, match=rf"Ledger .*{name}: .*write.*ls -ld {others_folder}"):
                Ledger.open(url(others_folder / name)).plan_batch(a_batch(), [])


@pytest.mark.parametrize("holder", ["another program", "another ledger"])
def test_a_locked_ledger_is_told_after_the_timeout(file: Path, holder: str) -> None:
    """Who cannot write in time is told how to find who holds it; reading goes on all the while."""
    ledger = Ledger.open(url(file), busy_timeout_seconds=0.2)
    other = Ledger.open(url(file))
    connection = sqlite3.connect(file, isolation_level=None)
    with other._writing() if holder == "another ledger" else transaction_of(connection):
        started = time.monotonic()
        with pytest.raises(LedgerError, match=rf"database is locked.*fuser -v {file}"):
            ledger.plan_batch(a_batch(), [])
        waited = time.monotonic() - started
        assert ledger.batches() == []
    connection.close()

    assert waited >= 0.2
    assert ledger.plan_batch(a_batch(), [])


@contextmanager
def transaction_of(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the lock of a database for the length of a block."""
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")


def test_a_full_disk_is_told_and_loses_nothing(file: Path) -> None:
    """What does not fit is undone as a whole, the remedy names the folder, and once there is room it works."""
    ledger = Ledger.open(url(file))
    ledger.plan_batch(a_batch(), [])
    with ledger._reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to have no room

    with pytest.raises(
        LedgerError, match=rf"ledger.sqlite: the disk is full, {file.parent} has [\d,]+ bytes left. Free some space"
    ):
        ledger.record_file(a_file(detail=UnroutableEvent("f", 1, "x" * 100_000)), while_state="planned")
    assert ledger.files("batch-1", "buffer") == []
    assert ledger.record_file(a_file(detail=UnroutableEvent("f", 1, "x" * 100_000)), while_state="planned")


def test_an_io_error_of_a_full_disk_is_told_as_one(file: Path) -> None:
    """SQLite's "disk I/O error" is told as a full disk where nothing is free, and as a fault where there is room."""
    full = explain("disk I/O error", engine_of("sqlite:////proc/ledger.sqlite"))
    fault = explain("disk I/O error", engine_of(url(file)))

    assert full == (
        "Ledger sqlite:////proc/ledger.sqlite: the disk is full, /proc has 0 bytes left. "
        "Free some space there, then run this again; nothing was lost."
    )
    assert f"disk I/O error. Look at the disk that holds {file.parent}" in fault


def test_a_damaged_ledger_is_told(file: Path) -> None:
    """A ledger whose pages are overwritten is not used, and the remedy says where the history still is."""
    Ledger.open(url(file)).close()
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (file.stat().st_size - 4096))

    with pytest.raises(LedgerError, match=r"malformed.*backup"):
        Ledger.open(url(file)).batches()
