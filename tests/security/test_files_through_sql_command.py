"""The query of `eventbridge sql` reaches its tables and nothing else: no file, network, setting or secret."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import UserError
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import sql_messages
from eventbridge.views.sql import run_sql

FROM, TO = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)

#: `{file}` is a file that exists, `{new}` one that does not.
READING = [
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_json('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('{file}')",
    "SELECT * FROM read_text('/proc/self/environ')",
    "SELECT * FROM read_csv('https://example.com/a.csv')",
    "SELECT * FROM read_parquet('s3://bucket/a.parquet')",
    "SELECT getenv('HOME')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
    "SELECT * FROM query_table('{file}')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM read_text(''{file}'')'))",
    "SELECT * FROM histogram('{file}', content)",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM read_duckdb('{file}')",
    "WITH x AS MATERIALIZED (SELECT * FROM read_text('{file}')) SELECT * FROM x",
    "SELECT (SELECT content FROM read_text('{file}')) FROM range(1)",
]
ACTING = [
    "COPY (SELECT 1) TO '{new}'",
    "COPY events TO '{new}' (FORMAT parquet)",
    "EXPORT DATABASE '{new}'",
    "ATTACH '{new}' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "CREATE TABLE t AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "CREATE SECRET (TYPE s3)",
    "DROP TABLE events",
    "UPDATE events SET bus = ''",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE SELECT 1",
    "IMPORT DATABASE '{file}'",
    "SELECT 1) AS result(c0); COPY (SELECT 1) TO '{new}'; SELECT * FROM (SELECT 1",
    "FROM events\n) AS result(c0) LIMIT 1; COPY (SELECT 1) TO '{new}' --",
]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """An installation without a batch."""
    home = tmp_path_factory.mktemp("home")
    opened = open_runtime(Settings.from_mapping({"EVENTBRIDGE_HOME": str(home)}), connections_from_environment({}))
    yield opened
    opened.close()


@pytest.mark.parametrize("query", READING + ACTING)
def test_a_query_reads_and_writes_no_file(runtime: Runtime, tmp_path: Path, query: str) -> None:
    """It is refused, and the refusal does not quote the file."""
    (tmp_path / "secret.txt").write_text("hush")
    text = query.format(file=tmp_path / "secret.txt", new=tmp_path / "new")

    with pytest.raises(UserError) as refused:
        run_sql(runtime, text, FROM, TO, 10)

    assert "hush" not in str(refused.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"SELECT '{'x' * 1_000_000}'", "more than 1,000,000 characters"),
        (f"SELECT {'+'.join('1' * 900)}", "nested too deeply"),
        ("SELECT 'infinity'::TIMESTAMPTZ", "a time after the year 9999"),
    ],
    ids=["long", "deep", "late"],
)
def test_a_query_without_bounds_is_refused(runtime: Runtime, query: str, message: str) -> None:
    """It gets one sentence, and no traceback."""
    with pytest.raises(UserError, match=message):
        run_sql(runtime, query, FROM, TO, 10)


def test_the_catalogue_of_duckdb_shows_the_tables(runtime: Runtime) -> None:
    """Also if the query names none of them."""
    of_events = "SELECT column_name FROM information_schema.columns WHERE table_name = 'events' LIMIT 2"

    assert run_sql(runtime, of_events, FROM, TO, 10).rows == [["bus"], ["topic"]]


def test_settings_stay_locked_for_the_next_query(runtime: Runtime) -> None:
    """What a query may look at says so; the process has neither a temporary folder nor the host's environment."""
    settings = """
        SELECT current_setting('enable_external_access') AS external, current_setting('lock_configuration') AS locked,
               current_setting('temp_directory') AS folder
    """
    for _ in range(2):
        assert run_sql(runtime, settings, FROM, TO, 10).rows == [[False, True, ""]]


@pytest.mark.parametrize(
    ("query", "seconds", "limit"),
    [
        ("SELECT sum(hash(i)) FROM range(100000000000) t(i)", 2.0, "takes more than 2 s"),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT max(i) FROM r",
            2.0,
            "takes more than 2 s",
        ),
        ("SELECT list(repeat('x', 1000000) || i) FROM range(100000) t(i)", 30.0, "takes more than 2GB of memory"),
        ("SELECT repeat('x', 3000000)", 30.0, "has a result of more than 1 MB"),
    ],
)
def test_a_query_has_limits(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, query: str, seconds: float, limit: str
) -> None:
    """Time, memory and result are bounded; the next query finds a process that works."""
    monkeypatch.setattr(sql_messages, "SECONDS", seconds)
    monkeypatch.setattr("eventbridge.views.sql._MAX_RESULT_BYTES", 1 << 20)

    with pytest.raises(UserError, match=limit):
        run_sql(runtime, query, FROM, TO, 10)

    assert run_sql(runtime, "SELECT 1", FROM, TO, 10).rows == [[1]]
