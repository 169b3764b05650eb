"""Migrations: they make the tables of today, carry older ledgers on, and leave nothing half done."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import new_ledgers
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from contracts.ledger_samples import Clock
from sqlalchemy import create_engine
from unit.ledger.ledger_file import indexes_of, url

from eventbridge import fault_points
from eventbridge.decision.breaker import Tally
from eventbridge.errors import LedgerError
from eventbridge.event.ids import Fingerprint
from eventbridge.ledger import Ledger, migrations, revision
from eventbridge.ledger.revision import HEAD
from eventbridge.ledger.tables import metadata
from eventbridge.model.landed import LandedRange
from eventbridge.model.partition import Partition
from eventbridge.model.routed import RoutedPiece, RoutedShare, RoutedSlice, SplitSlice, UnroutableEvent

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
    piece = '["eventbridge.high", 750, "late", "crm", "0", 1, 90, 3]'
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
    a_piece = RoutedPiece("eventbridge.high", 750, "late", "crm", "0", 1, 90, 3)
    landed = LandedRange(
        queue=Partition("t", "", 1),
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
            candidate_events={"late": "1-2"},
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


def test_a_newer_ledger_is_refused(file: Path) -> None:
    """A revision that this version does not know is told with the remedy, and the ledger is left as it is."""
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
    assert len(Ledger.open(url(file)).ledger_id) == 36
