"""`eventbridge sql`: queries over what a delivery has left, within a time range."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli.conftest import Result, Shop

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.upkeep.maintain import maintain

Run = Callable[..., Result]

STATUSES = "SELECT rule, target, status, count(*) AS n FROM deliveries GROUP BY ALL ORDER BY rule, target, n DESC"


def store(shop: Shop) -> Path:
    """Return the folder of a shop's store."""
    return shop.folder / "home" / "store"


def test_rows_are_an_aligned_table_and_the_range_is_a_note(delivered: Shop, eventbridge: Run) -> None:
    """Each delivery is one row with its last status; numbers stand on the right; the range is said on stderr."""
    found = eventbridge("sql", STATUSES)

    assert found.code == 0, found.err
    assert found.out.splitlines() == [
        "  rule        target    status           n",
        "  all-orders  archive   delivered        4",
        "  all-orders  bad       dead_lettered    4",
        "  all-orders  flaky     retry_scheduled  4",
        "  all-orders  gone      unknown          3",
        "  all-orders  gone      dead_lettered    1",
        "  big-orders  accounts  delivered        2",
        "  big-orders  note      delivered        1",
        "  big-orders  note      dead_lettered    1",
    ]
    assert "Note: 8 rows; the tables have what happened from 20" in found.err
    assert "(UTC). --from and --to choose the range" in found.err


def test_json_keeps_types_and_csv_keeps_text(delivered: Shop, eventbridge: Run) -> None:
    """Events and lists are JSON in JSON, decimals have all digits, columns of one name get different ones."""
    query = """
        SELECT event_id, event->'$.data' AS data, (event->>'$.data.amount')::DECIMAL(9, 2) AS amount, [1, NULL] AS list,
               1 AS a, 2 AS a, status = 'valid' AS ok, sum(1) AS total, NULL AS nothing, 'NaN'::DOUBLE AS number
        FROM events WHERE event_id = 'o1' GROUP BY ALL
    """

    documents = eventbridge("sql", query, "-o", "json").json
    as_csv = eventbridge("sql", query, "--csv").out

    assert documents == [
        {
            **{"event_id": "o1", "data": {"amount": 1500}, "amount": 1500, "list": [1, None], "a": 1, "a_1": 2},
            **{"ok": True, "total": 1, "nothing": None, "number": "nan"},
        }
    ]
    assert '"amount": 1500.00' in eventbridge("sql", query, "--json").out
    assert list(csv.reader(io.StringIO(as_csv)))[1] == [
        *("o1", '{"amount":1500}', "1500.00", "[1,null]", "1", "2", "true", "1", "", "nan")
    ]


def test_a_cut_result_says_so(delivered: Shop, eventbridge: Run) -> None:
    """`--limit` keeps the first rows in the order of the query, and a note says that there are more."""
    found = eventbridge("sql", "SELECT event_id FROM events WHERE event_id IS NOT NULL ORDER BY 1 DESC", "--limit", "2")

    assert found.out.split() == ["event_id", "o3", "o2"]
    assert "Note: there are more than 2 rows; use --limit" in found.err
    whole = eventbridge("sql", "SELECT event_id FROM events WHERE event_id IS NOT NULL", "--limit", "4")
    assert "more than" not in whole.err


@pytest.mark.parametrize("table", ["events", "deliveries", "attempts", "dead_letters", "batches"])
def test_rows_outside_of_the_range_are_left_out(delivered: Shop, eventbridge: Run, table: str) -> None:
    """The range ends before `--to`; a range that begins after the delivery, or ends before it, has no rows."""
    count = f"SELECT count(*) AS n FROM {table}"

    assert eventbridge("sql", count, "--json").json[0]["n"] > 0
    assert eventbridge("sql", count, "--to", "1h", "--json").json == [{"n": 0}]
    assert eventbridge("sql", count, "--from", "2030-01-01", "--to", "2031-01-01", "--json").json == [{"n": 0}]


def test_a_range_that_cuts_a_batch_takes_its_rows_by_their_own_time(delivered: Shop, eventbridge: Run) -> None:
    """Two ranges that meet within a batch have each row once."""
    (at,) = eventbridge("sql", "SELECT median(started_at)::VARCHAR AS at FROM attempts", "--json").json
    both = [
        eventbridge("sql", "SELECT delivery_id FROM attempts", *period, "--json").json
        for period in (("--to", at["at"]), ("--from", at["at"]))
    ]
    every = eventbridge("sql", "SELECT delivery_id FROM attempts", "--json").json

    assert all(both)
    assert sorted(row["delivery_id"] for part in both for row in part) == sorted(row["delivery_id"] for row in every)


def test_only_files_that_the_query_names_are_read(delivered: Shop, eventbridge: Run) -> None:
    """Statuses need the settlements only; a file that is missing is a warning, and exit code 1.

    Without the delivery file, the rows of deliveries are there, and a note says what they lack.
    """
    for folder in ("buffer", "deliveries", "outcomes", "dead_letters"):
        shutil.rmtree(store(delivered) / folder)

    statuses = eventbridge("sql", "SELECT count(*) AS n, max(attempts) AS most FROM deliveries", "--json")
    routed = eventbridge("sql", "SELECT count(*) AS n, count(event_id) AS known FROM deliveries", "--json")
    events = eventbridge("sql", "SELECT count(*) AS n FROM events", "--json")

    assert (statuses.code, statuses.json) == (0, [{"n": 20, "most": 1}])
    assert (routed.code, routed.json) == (0, [{"n": 20, "known": 0}])
    assert "removed or is lost; settlements of such files: 20" in routed.err
    assert "Note: deliveries" not in statuses.err
    assert (events.code, events.json) == (1, [{"n": 0}])
    assert "Warning: rows are missing: The store" in events.err


def test_a_redriven_delivery_is_one_row(delivered: Shop, eventbridge: Run) -> None:
    """A later batch settles it again: `deliveries` has it once, of that batch; `attempts` has each try."""
    started = eventbridge("redrives", "start", "--rule", "all-orders", "--target", "bad")
    assert "4 dead letters taken, 4 dead_lettered" in started.out, started.out + started.err

    of_bad = "SELECT event_id, kind FROM deliveries JOIN batches USING (batch_id) WHERE target = 'bad' ORDER BY 1"
    rows = eventbridge("sql", of_bad, "--csv").out.split()
    tries = eventbridge("sql", "SELECT count(*) AS n FROM attempts WHERE target = 'bad'", "--json").json
    every = eventbridge("sql", "SELECT count(*) AS n FROM deliveries", "--json").json
    kinds = eventbridge("sql", "SELECT kind, deliveries FROM batches ORDER BY planned_at", "--csv").out

    assert rows == ["event_id,kind", *(f"o{number},redrive" for number in range(4))]
    assert (tries, every) == ([{"n": 8}], [{"n": 20}])
    assert kinds.splitlines()[1:] == ["normal,20", "redrive,4"]


def test_tables_can_be_joined(delivered: Shop, eventbridge: Run) -> None:
    """Ids have one type in all tables."""
    query = """
        SELECT d.event_id, a.code, e.event->>'$.data.amount' AS amount, b.kind, l.detail
        FROM attempts a JOIN deliveries d USING (delivery_id) JOIN batches b ON b.batch_id = a.batch_id
             JOIN events e ON e.event_id = d.event_id JOIN dead_letters l USING (delivery_id)
        WHERE a.target = 'bad' AND d.event_id = 'o3'
    """
    assert eventbridge("sql", query, "--json").json == [
        {"event_id": "o3", "code": 400, "amount": "100", "kind": "normal", "detail": "HTTP 400"}
    ]


def test_new_names_of_columns_are_given_by_position(delivered: Shop, eventbridge: Run) -> None:
    """The positions are those of the whole table, although the query names few of its columns."""
    query = "SELECT DISTINCT a, d FROM deliveries AS x(i, a, t) JOIN batches b(id, d, r, n) ON n = 'orders' ORDER BY a"

    assert eventbridge("sql", query, "--csv").out.split() == ["a,d", "all-orders,normal", "big-orders,normal"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT e FROM events e",
        "SELECT d.* FROM deliveries d",
        "FROM dead_letters",
        "SELECT COLUMNS('.*') FROM attempts",
        "SELECT 1 FROM attempts NATURAL JOIN deliveries",
        "SUMMARIZE batches",
        "WITH late AS (FROM attempts) SELECT max(duration_ms) FROM late -- comment",
        "SELECT reason FROM dead_letters UNION ALL BY NAME SELECT status FROM events;",
        "SELECT count(*) FROM events, events e2",
    ],
)
def test_any_select_reads_what_it_needs(delivered: Shop, eventbridge: Run, query: str) -> None:
    """Columns that a query takes without naming them are read, too."""
    found = eventbridge("sql", query, "-o", "json")

    assert found.code == 0, found.err
    assert "attempts NATURAL" in query or found.json


def test_describe_and_show_read_nothing(shop: Shop, eventbridge: Run) -> None:
    """Columns can be looked up before there is anything, and no range is said."""
    described = eventbridge("sql", "DESCRIBE batches", "--json")
    shown = eventbridge("sql", "SHOW TABLES")

    assert [row["column_name"] for row in described.json][:3] == ["batch_id", "kind", "runner"]
    assert shown.out.split() == ["name", "attempts", "batches", "dead_letters", "deliveries", "events"]
    assert "--from" not in shown.err


def test_a_query_comes_from_standard_input(delivered: Shop, eventbridge: Run) -> None:
    """`-` reads it there."""
    assert eventbridge("sql", "-", "--csv", stdin=b"SELECT count(*) AS n\nFROM events\n").out == "n\n6\n"
    assert "more than 1,000,000 characters" in eventbridge("sql", "-", stdin=b"SELECT 1 --" + b"x" * 3_000_000).err


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT rulle FROM deliveries", 'column "rulle" not found'),
        (
            "SELECT * FROM letters",
            'Table with name letters does not exist! Did you mean "dead_letters"? The tables are',
        ),
        ("SELCT 1", 'syntax error at or near "SELCT"'),
        ("DELETE FROM events", "only SELECT can be run"),
        ("WITH x AS (INSERT INTO events (bus) VALUES ('a') RETURNING 1) FROM x", "only SELECT can be run"),
        ("SELECT 1; SELECT 2", "several statements"),
        (" ; ", "the query is empty"),
        ("SELECT * FROM query('FROM events')", "query() is not available"),
        ("SELECT event_id::INT FROM events", "fails on the data: Could not convert string 'o0' to INT32"),
    ],
)
def test_a_query_that_cannot_be_run_is_refused(delivered: Shop, eventbridge: Run, query: str, message: str) -> None:
    """The message says what is wrong, before any file is read if the data is not needed to know it."""
    found = eventbridge("sql", query)

    assert (found.code, found.out) == (2, "")
    assert message in found.err


def test_a_query_that_reads_too_much_says_how_to_read_less(
    delivered: Shop, eventbridge: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound counts what is read, not what the tables have."""
    monkeypatch.setattr("eventbridge.views.sql.MAX_BYTES", 2_000)

    few = eventbridge("sql", "SELECT count(*) AS n FROM events", "--json")
    many = eventbridge("sql", "SELECT * FROM deliveries")

    assert (few.code, few.json) == (0, [{"n": 6}])
    assert many.code == 2
    assert "Choose a shorter range with --from and --to, or name fewer columns" in many.err


def test_an_event_that_was_published_again_later_has_one_row_a_delivery(shop: Shop, eventbridge: Run) -> None:
    """Both batches deliver it under the same id; the events are two messages."""
    for _ in range(2):
        eventbridge("events", "publish", "orders", shop.orders(1))
        shop.deliver()

    counts = "SELECT (SELECT count(*) FROM deliveries) AS deliveries, (SELECT count(*) FROM events) AS events"
    assert eventbridge("sql", counts, "--json").json == [{"deliveries": 1, "events": 2}]


TWO_RUNNERS = """
buses:
  orders:
    source: {{type: embedded, start_at: earliest}}
rules:
  first: {{bus: orders, pattern: {{type: [order.placed]}}, targets: {{one: {{type: file, path: one.jsonl}}}}}}
  second:
    bus: orders
    runner: audit
    pattern: {{type: [order.placed]}}
    targets: {{two: {{type: file, path: two.jsonl}}}}
"""


def test_an_event_that_two_runners_landed_is_one_row(shop: Shop, eventbridge: Run) -> None:
    """Each runner has its own batch and deliveries; the event is counted once, also if its key is not asked for."""
    (shop.rules / "orders.yaml").write_text(TWO_RUNNERS.format())
    eventbridge("events", "publish", "orders", shop.orders(1, 2, 3))
    shop.deliver()
    shop.deliver(runner="audit")

    events = "SELECT count(*) AS n, count(DISTINCT type) AS types FROM events"
    assert eventbridge("sql", events, "--json").json == [{"n": 3, "types": 1}]
    assert eventbridge("sql", "SELECT runner FROM batches ORDER BY 1", "--csv").out.split()[1:] == ["audit", "orders"]
    assert eventbridge("sql", "SELECT count(*) AS n FROM deliveries", "--json").json == [{"n": 6}]


def test_a_note_says_what_retention_has_removed(shop: Shop, eventbridge: Run) -> None:
    """Deliveries are kept for a shorter time than events; they are missing, and the events are still there."""
    eventbridge("events", "publish", "orders", shop.orders(1, 2, 3))
    shop.deliver()
    settings = Settings.from_mapping(shop.environ | {"EVENTBRIDGE_RETENTION_DELIVERIES": "1d"})
    two_days_later = datetime.now(UTC) + timedelta(days=2)
    runtime = open_runtime(settings, connections_from_environment({}), clock=lambda: two_days_later)
    maintain(runtime)
    runtime.close()

    count = "SELECT (SELECT count(*) FROM deliveries) AS deliveries, (SELECT count(*) FROM events) AS events"
    found = eventbridge("sql", count, "--json")

    assert found.json == [{"deliveries": 0, "events": 3}]
    assert "Note: deliveries: files of batches planned up to 20" in found.err
    assert "events: files" not in found.err
