"""`dead-letters list` and `export` by error text, time, names and SQL."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from eventbridge.store import schemas


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--error", "http 400"), 4),
        (("--error", "NO SUCH TEXT"), 0),
        (("--from", "1h"), 8),
        (("--to", "1h"), 0),
        (("--from", "2020-01-01"), 8),
        (("--from", "2020-01-01T00:00:00+02:00", "--to", "2020-01-02"), 0),
        (("--name", "placed/0/0", "--name", "paid/9/9"), 2),
        (("--sql", "reason = 'non_retryable'"), 4),
        (("--sql", "attempts[1].code = 410"), 1),
        (("--sql", "(event->>'$.data.amount')::INT > 1000 -- large", "--target", "bad"), 2),
        (("--sql", "name IN (SELECT name FROM dead_letters WHERE rule IS NULL)"), 2),
        (("--sql", "dead_lettered_at < '2020-01-01' OR delivery_id IS NULL"), 2),
    ],
)
def test_dead_letters_are_chosen(
    options: tuple[str, ...], count: int, delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """Error text in any case, times in UTC or so long ago, names, and conditions in SQL."""
    result = eventbridge("dead-letters", "list", *options, "--json")

    assert result.code == 0, result.err
    assert len(result.json) == count, [each["detail"] for each in result.json]


def test_a_name_chooses_by_the_beginning_of_an_id(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A delivery id, or its beginning, is a name as it is for `show`."""
    wanted = eventbridge("dead-letters", "list", "--target", "gone", "--json").json[0]["name"]

    (found,) = eventbridge("dead-letters", "list", "--name", wanted[:11].upper(), "--json").json

    assert found["name"] == wanted


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "yesterday"), "from 'yesterday' is not a time"),
        (("--from", "800000d"), "from '800000d' is not a time"),
        (("--to", "99999999999d"), "to '99999999999d' is not a time"),
        (("--from", "0001-01-01T00:00:00+14:00"), "is not a time"),
        (("--rule", "", "--target", "bad"), "--rule is empty"),
        (("--name", ""), "--name is empty"),
        (("--name", "orders/placed/0/0", "--name", ""), "--name is empty"),
        (("--name", "-"), "cannot be the name of a dead letter"),
        (("--name", "/2"), "cannot be the name of a dead letter"),
        (("--from", " "), "--from is empty"),
        (("--sql", " "), "--sql is empty"),
        (("--name", "no-such-thing"), "cannot be the name of a dead letter"),
        (("--sql", "reasn = 'x'"), "reason"),
        (("--sql", "true) ; SELECT (1"), "is not an SQL condition"),
        (("--sql", "name IN (SELECT * FROM read_csv('/etc/passwd'))"), "disabled by configuration"),
        (("--sql", "name IN (SELECT path FROM paths)"), "paths does not exist"),
        (("--sql", "rule"), "fails on a dead letter"),
    ],
)
def test_an_invalid_filter_is_an_error(
    options: tuple[str, ...], said: str, delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """A time, a name or a condition that is none is the user's error; SQL reaches no file and no variable."""
    result = eventbridge("dead-letters", "list", *options)

    assert result.code == 2
    assert said in result.err


def test_ctrl_c_ends_a_condition_that_takes_for_ever(delivered: Any) -> None:
    """At the first one, without a traceback, and with the exit code of an interruption."""
    endless = "(SELECT sum(a.range * b.range % 7) FROM range(9000000) a, range(9000000) b) > 0"
    with delivered.process("dead-letters", "list", "--sql", endless) as running:
        _wait_until_asked(running)
        running.send_signal(signal.SIGINT)
        _, output = running.communicate(timeout=60)

    assert running.returncode == 130
    assert "Traceback" not in output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_export_that_is_ended_leaves_no_draft(number: signal.Signals, code: int, delivered: Any) -> None:
    """Neither Ctrl-C nor SIGTERM leaves the hidden file that was being written."""
    endless = "(SELECT sum(a.range * b.range % 7) FROM range(9000000) a, range(9000000) b) > 0"
    before = set(delivered.folder.iterdir())
    with delivered.process("dead-letters", "export", "dead-letters.jsonl", "--sql", endless) as running:
        _wait_until_asked(running)
        running.send_signal(number)
        _, output = running.communicate(timeout=60)

    shown = running.returncode if running.returncode >= 0 else 128 - running.returncode  # as a shell has it
    assert shown == code, output
    assert set(delivered.folder.iterdir()) == before
    assert "Traceback" not in output


def _wait_until_asked(running: Any) -> None:
    """Wait until the process that runs DuckDB for a command has computed for two seconds; its start takes less."""
    while sum(_cpu_seconds(each) for each in psutil.Process(running.pid).children()) < 2.0:
        assert running.poll() is None
        time.sleep(0.05)


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def test_a_damaged_file_is_no_error_of_the_user(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A missing file is reported as missing, with the command that rebuilds it."""
    for path in (delivered.folder / "home" / "store" / "dead_letters").rglob("*.parquet"):
        path.unlink()

    results = [eventbridge("dead-letters", "list", *options) for options in ((), ("--sql", "true"))]

    for result in results:
        assert result.code == 1
        assert "has no file" in result.err
    repair = re.search(r"`eventbridge (batches repair \S+) --dry-run`", results[0].err)
    assert repair is not None
    assert eventbridge(*repair[1].split()).code == 0
    assert len(eventbridge("dead-letters", "list", "--json").json) == 8


@pytest.fixture
def newest_readable(delivered: Any, eventbridge: Callable[..., Any]) -> str:
    """A shop of which only the newest batch's dead letters can be read, three other files cannot. Returns its id."""
    damaged = list((delivered.folder / "home" / "store" / "dead_letters").rglob("*.parquet"))
    assert eventbridge("events", "publish", "orders", delivered.orders(2000, id="late")).code == 0
    delivered.deliver()
    for path in damaged:
        path.write_bytes(path.read_bytes()[:100])
    return str(eventbridge("status", "--json").json["batches"][0]["batch_id"])


@pytest.mark.parametrize(
    "options", [(), ("--sql", "rule = 'big-orders'"), ("--error", "$.data.note")], ids=["all", "sql", "error"]
)
def test_a_file_that_cannot_be_read_hides_no_other(
    newest_readable: str, eventbridge: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """The dead letters of every other batch are listed; the file and its repair are named, and the exit code is 1."""
    result = eventbridge("dead-letters", "list", "--json", *options)

    assert {each["batch_id"] for each in result.json} == {newest_readable}
    assert result.code == 1
    assert re.match(r"Warning: dead letters were skipped: batch \S+ cannot be read: .*batches repair", result.err)


def test_a_file_of_a_newer_version_hides_no_other(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """After a downgrade the dead letters that this version can read are listed, and the unreadable ones are named."""
    newer, *_ = (delivered.folder / "home" / "store" / "dead_letters").rglob("*.parquet")
    table = pq.read_table(newer)
    with pq.ParquetWriter(newer, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"eventbridge.format": "9"})

    result = eventbridge("dead-letters", "list", "--json")

    assert len(result.json) == 8 - table.num_rows
    assert result.code == 1
    assert "is of format 9" in result.err


@pytest.mark.parametrize("circle", [True, False], ids=["link", "pipe"])
def test_a_file_that_the_disk_does_not_give_hides_no_other(
    delivered: Any, eventbridge: Callable[..., Any], *, circle: bool
) -> None:
    """A file that cannot be opened (a circular link), or whose opening would block (a pipe), is reported."""
    lost, *_ = (delivered.folder / "home" / "store" / "dead_letters").rglob("*.parquet")
    rows = pq.read_metadata(lost).num_rows
    lost.unlink()
    lost.symlink_to(lost) if circle else os.mkfifo(lost)

    result = eventbridge("dead-letters", "list", "--json")

    assert len(result.json) == 8 - rows
    assert result.code == 1
    assert "dead letters were skipped: Cannot read" in result.err


def test_readable_dead_letters_are_shown_exported_and_redriven(
    newest_readable: str, eventbridge: Callable[..., Any], shop: Any
) -> None:
    """By `show`, `export` and `redrive`, each of which says what it passed over; what is not found may lie there."""
    (name, *_) = (each["name"] for each in eventbridge("dead-letters", "list", "--json").json)
    lines = shop.folder / "dead-letters.jsonl"

    shown = eventbridge("dead-letters", "show", name, "--json")
    missed = eventbridge("dead-letters", "show", "ffffffff")
    exported = eventbridge("dead-letters", "export", str(lines))
    surveyed = eventbridge("redrives", "start", "--all", "--dry-run", "--json")
    redriven = eventbridge("redrives", "start", "--all", "--json")

    results = [shown, missed, exported, surveyed, redriven]
    assert [result.code for result in results] == [1] * len(results)
    assert [result.err.count("were skipped") for result in results] == [3] * len(results)
    assert shown.json["batch_id"] == newest_readable
    assert "there is no dead letter 'ffffffff' in the files that can be read" in missed.err
    assert {json.loads(line)["batch_id"] for line in lines.read_text().splitlines()} == {newest_readable}
    assert sum(each["count"] for each in surveyed.json["taken"] + surveyed.json["left"]) == len(
        lines.read_text().splitlines()
    )
    assert redriven.json["state"] == "done"


def test_dead_letters_are_exported_whole(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """As JSON lines, with event, request and attempts, or as Parquet with the columns of the store."""
    lines, table = delivered.folder / "dead-letters.jsonl", delivered.folder / "dead-letters.parquet"

    output = eventbridge("dead-letters", "export", str(lines), "--target", "bad")
    as_table = eventbridge("dead-letters", "export", str(table), "--json")
    printed = eventbridge("dead-letters", "export", "-", "--target", "bad")

    assert output.out == (
        f"4 dead letters written to {lines}.\n"
        "They also stay in the store: `eventbridge redrives start` delivers dead letters again.\n"
    )
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {each["attempts"][0]["code"] for each in records} == {400}
    assert all(each["name"].startswith(each["delivery_id"]) and each["event"] and each["request"] for each in records)
    assert as_table.json == {"file": str(table), "dead_letters": 8}
    assert pq.read_table(table).schema.equals(schemas.DEAD_LETTER)
    assert printed.out == lines.read_text()


def test_an_export_overwrites_nothing(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """An existing file, an unknown file type and a missing folder are refused: nothing is written."""
    there = delivered.write("there.jsonl", "mine")

    results = [
        eventbridge("dead-letters", "export", there),
        eventbridge("dead-letters", "export", str(delivered.folder / "letters.csv")),
        eventbridge("dead-letters", "export", str(delivered.folder / "nowhere" / "dead-letters.jsonl")),
        eventbridge("dead-letters", "export", "-", "--json"),
    ]

    assert [each.code for each in results] == [2, 2, 4, 2]
    assert (delivered.folder / "there.jsonl").read_text() == "mine\n"
    assert not list(delivered.folder.glob(".*letters*"))
