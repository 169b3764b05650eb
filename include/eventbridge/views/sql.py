"""Runs a query of a user over the tables of `views.sql_tables`, for a time range, in the sandbox process of DuckDB.

The query is first checked without data. Then this process reads only the files of the range, and only the tables and
columns that the query names, and passes them to DuckDB. DuckDB itself opens no file and no connection.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from eventbridge.errors import (
    NewerFormatError,
    StoreFileDamaged,
    StoreFileMissing,
    StoreFileUnreadable,
    UserError,
)
from eventbridge.processes import check_cancelled
from eventbridge.progress import Progress, unreported
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import columns, sql_messages
from eventbridge.store.sql_sandbox import Database, SqlLimited, SqlRefused, database
from eventbridge.views.sql_files import read_file
from eventbridge.views.sql_tables import (
    BATCHES,
    FILE_NUMBER,
    SQL_TABLES,
    Column,
    SqlTable,
    TableFile,
    TableFiles,
    batch_rows,
    find_files,
    key_columns,
    notes_of,
    sources_of,
    type_of,
)

#: The maximum bytes of a query's tables, as Arrow holds them.
MAX_BYTES: Final = 2 << 30
#: The maximum length of a query, in characters.
MAX_QUERY: Final = 1_000_000
#: The maximum bytes of a result.
_MAX_RESULT_BYTES: Final = 256 << 20
#: The bytes that are passed to DuckDB at a time.
_FILL_BYTES: Final = 32 << 20
#: DuckDB compresses its tables each time that it has got so many bytes.
_COMPRESS_BYTES: Final = 256 << 20
#: The number of files that are read at a time, if they have at most this many rows together.
_FILES_AT_ONCE: Final = 8
_ROWS_AT_ONCE: Final = 50_000

_NUMBERS: Final = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE")
)
_AS_THEY_ARE: Final = _NUMBERS | {"BOOLEAN", "VARCHAR"}
_TIME: Final = "TIMESTAMP WITH TIME ZONE"
#: The table functions that a query may call: they read nothing but their arguments and the names of tables. Others read
#: files, run SQL that is a string, or change the process.
_TABLE_FUNCTIONS: Final = frozenset(
    (
        *("range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree", "pragma_table_info"),
        *("duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_settings", "duckdb_tables", "duckdb_types"),
        *("icu_calendar_names", "pg_timezone_names"),
    )
)

_ONLY_SELECT: Final = "only SELECT can be run."
_HELP: Final = f'The tables are {", ".join(SQL_TABLES)}; `eventbridge sql "DESCRIBE events"` shows the columns of one.'
_NARROWER: Final = "Choose a shorter range with --from and --to, or name fewer columns: `*` reads all of them."
_UNREADABLE: Final = (StoreFileDamaged, StoreFileMissing, StoreFileUnreadable, NewerFormatError)


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result; `kind` is number, text, json, time or boolean. A decimal is a number given as text."""

    name: str
    type: str

    @property
    def kind(self) -> str:
        """What the values are."""
        if self.type in _NUMBERS or self.type.startswith(("HUGEINT", "UHUGEINT", "DECIMAL")):
            return "number"
        if self.type == "JSON" or self.type.endswith("]") or self.type.startswith(("STRUCT", "MAP", "UNION")):
            return "json"
        return {"BOOLEAN": "boolean", _TIME: "time"}.get(self.type, "text")

    def expression_of(self, name: str) -> str:
        """Return the SQL expression of the values of a column in a form that has no surprises in Arrow."""
        if self.type in _AS_THEY_ARE or self.type == _TIME:
            return name
        is_nested = self.kind == "json" and self.type != "JSON"
        return f"to_json({name})::VARCHAR" if is_nested else f"{name}::VARCHAR"


@dataclass
class SqlResult:
    """The result of a query; `is_cut` is True if it has more rows, `reads` is False if it reads no table.

    `notes` say what the tables lack. `unreadable` has the errors of files that were skipped.
    """

    columns: tuple[ResultColumn, ...]
    rows: list[list[Any]] = field(default_factory=list)
    is_cut: bool = False
    reads: bool = True
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Names:
    """The tables that a query reads, the words in it, and whether it may read columns that it does not name.

    `describes` is True for DESCRIBE and SHOW, which need no rows.
    """

    tables: tuple[SqlTable, ...]
    words: frozenset[str]
    reads_all: bool
    describes: bool

    def columns_of(self, table: SqlTable) -> tuple[Column, ...]:
        return table.columns if self.reads_all else table.select(self.words)


def run_sql(
    runtime: Runtime, query: str, since: datetime, until: datetime, limit: int, progress: Progress = unreported
) -> SqlResult:
    """Return at most `limit` rows of a query's result over the rows of a time range.

    `progress` gets the number of files read. Raises UserError for an invalid query, one that fails on the data, and one
    that takes too much time or memory.
    """
    query = query.strip().rstrip(";").rstrip()
    if not query:
        raise UserError(f"the query is empty. Write one SELECT statement. {_HELP}")
    if len(query) > MAX_QUERY:
        raise UserError(f"the query has more than {MAX_QUERY:,} characters. Write a shorter one")
    names, found = _check(query)
    result = SqlResult(found, reads=bool(names.tables) and not names.describes)
    try:
        with database(sql_messages.LARGE) as opened:
            if not result.reads:
                _fill_empty(opened)
            else:
                _fill(runtime, opened, names, (since, until), result, progress)
            named = ", ".join(f"c{number}" for number in range(len(found)))
            shown = ", ".join(f"{each.expression_of(f'c{number}')} AS c{number}" for number, each in enumerate(found))
            (table,) = opened.ask(
                [f"SELECT {shown} FROM (\n{query}\n) AS result({named}) LIMIT {limit + 1}"],
                max_bytes=_MAX_RESULT_BYTES,
            )
    except SqlRefused as error:
        raise UserError(
            f"the query fails on the data: {_sentence(error)} TRY_CAST and TRY return null instead"
        ) from None
    except SqlLimited as error:
        raise UserError(f"the query {error}. {_NARROWER}") from None
    result.is_cut = table.num_rows > limit
    try:
        result.rows = [list(row.values()) for row in columns.plain_rows(table.slice(0, limit))]
    except OverflowError:
        raise UserError(
            "the query's result has a time after the year 9999 or before the year 1. Cast it to VARCHAR"
        ) from None
    return result


def _check(query: str) -> tuple[_Names, tuple[ResultColumn, ...]]:
    """Return what a query names, and the columns of its result. Raises UserError if it is not one valid SELECT."""
    text = query.replace("'", "''")
    try:
        with database(sql_messages.LARGE) as opened:
            _fill_empty(opened)
            (tree,) = opened.ask([f"SELECT json_serialize_sql('{text}') AS tree"])
            names = _names(_parsed(tree["tree"][0].as_py()), query)
            (found,) = opened.ask(
                [f"SELECT column_name AS name, column_type AS type FROM (DESCRIBE SELECT * FROM (\n{query}\n))"]
            )
    except SqlRefused as error:
        raise UserError(f"the query cannot be run: {_sentence(error)} {_HELP}") from None
    except SqlLimited as error:
        raise UserError(f"the query {error}. Write a simpler one") from None
    return names, tuple(ResultColumn(**row) for row in found.to_pylist())


def _parsed(tree: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(tree)
    except RecursionError:
        raise SqlRefused("it is nested too deeply. Write IN or list_contains instead of a long chain.") from None
    return found


def _sentence(error: SqlRefused) -> str:
    """Return DuckDB's message on one line, without the name of its class of errors."""
    text = re.sub(r"^[\w ]+ Error: ", "", " ".join(str(error).split()))
    return text if text.endswith(("?", ".", "!")) else f"{text}."


def _names(tree: dict[str, Any], query: str) -> _Names:
    """Return what a parsed query names. Raises SqlRefused, which keeps the process of DuckDB for the next query."""
    if tree["error"]:
        raise SqlRefused(_ONLY_SELECT if tree["error_type"] == "not implemented" else tree["error_message"])
    if len(tree["statements"]) != 1:
        raise SqlRefused("it has several statements. Write one SELECT statement.")
    nodes = list(_nodes(tree["statements"][0]))
    called = {each["function"]["function_name"].lower() for each in nodes if each.get("type") == "TABLE_FUNCTION"}
    if others := sorted(called - _TABLE_FUNCTIONS):
        available = ", ".join(sorted(_TABLE_FUNCTIONS))
        raise SqlRefused(f"{others[0]}() is not available here as a table. Available functions: {available}.")
    if any(str(each.get("type")).startswith(("INSERT_", "UPDATE_", "DELETE_", "MERGE_")) for each in nodes):
        raise SqlRefused(_ONLY_SELECT)
    tables = [each for each in nodes if each.get("type") == "BASE_TABLE"]
    known = {each["table_name"].lower() for each in tables}
    aliases = known | {each["alias"].lower() for each in tables}
    # A column with the name of a table is the whole row, as in `SELECT e FROM events e`.
    whole = any(each["column_names"][-1].lower() in aliases for each in nodes if each.get("class") == "COLUMN_REF")
    # New names, as in `FROM events AS e(a, b)`, are given by position.
    renamed = any(each["column_name_alias"] for each in tables)
    natural = any(each.get("ref_type") == "NATURAL" for each in nodes)
    stars = any(each.get("class") == "STAR" for each in nodes)
    return _Names(
        tuple(table for name, table in SQL_TABLES.items() if name in known),
        frozenset(re.findall(r"\w+", query.lower())),
        whole or renamed or natural or stars,
        describes=_describes(tree["statements"][0]["node"]),
    )


def _describes(node: dict[str, Any]) -> bool:
    shown = node.get("from_table") or {}
    return shown.get("type") == "SHOW_REF" and shown.get("show_type") != "SUMMARY"


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a parsed query."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _fill_empty(opened: Database) -> None:
    for table in SQL_TABLES.values():
        opened.fill(_create(table, table.columns), _empty(table, table.columns))


def _fill(
    runtime: Runtime,
    opened: Database,
    names: _Names,
    period: tuple[datetime, datetime],
    result: SqlResult,
    progress: Progress,
) -> None:
    found = {each.name: find_files(runtime, each, *period) for each in names.tables if each.kind is not None}
    result.notes += notes_of(found)
    reading = _Reading(runtime, period, result, progress, sum(len(each.files) for each in found.values()))
    for table in names.tables:
        wanted = names.columns_of(table)
        if table is BATCHES:
            rows = pa.Table.from_pylist(batch_rows(runtime, *period), schema=table.schema)
            opened.fill(_create(table, wanted or table.columns), rows)
        else:
            _fill_from_files(opened, table, wanted, found[table.name], reading)
    if reading.lacking:
        result.notes.append(
            "deliveries: bus, event_id, request and others are null where the delivery file was removed or is lost; "
            f"settlements of such files: {reading.lacking:,}"
        )


def _fill_from_files(
    opened: Database, table: SqlTable, wanted: Sequence[Column], found: TableFiles, reading: _Reading
) -> None:
    hidden = list(key_columns(table)) if found.is_repeated else []
    stored = f"all_{table.name}" if hidden else table.name
    all_wanted = [*(wanted or table.select(table.times)), *hidden]
    opened.fill(_create(table, all_wanted, stored), _empty(table, all_wanted))
    insert = f"INSERT INTO {stored} SELECT {_expressions(all_wanted)} FROM part"
    uncompressed = 0
    for part in _in_parts(reading.read(table, all_wanted, found.files)):
        opened.fill(insert, part)
        uncompressed += part.nbytes
        if uncompressed > _COMPRESS_BYTES:
            opened.fill("CHECKPOINT", _empty(table, all_wanted))
            uncompressed = 0
    if hidden:
        shown = ", ".join(f'"{each.name}"' for each in all_wanted if each not in hidden)
        key = ", ".join(f'"{each.name}"' for each in hidden if each.name != FILE_NUMBER)
        newest = f"SELECT {key}, max({FILE_NUMBER}) FROM {stored} GROUP BY {key}"
        opened.fill(
            f"CREATE VIEW {table.name} AS SELECT {shown} FROM {stored} WHERE ({key}, {FILE_NUMBER}) IN ({newest})",
            _empty(table, all_wanted),
        )


def _create(table: SqlTable, wanted: Sequence[Column], name: str = "") -> str:
    return f"CREATE TABLE {name or table.name} AS SELECT {_expressions(wanted)} FROM part"


def _in_parts(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of tables in larger tables."""
    waiting: list[pa.Table] = []
    size = 0
    for each in tables:
        waiting.append(each)
        size += each.nbytes
        if size > _FILL_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _expressions(wanted: Sequence[Column]) -> str:
    return ", ".join(f'{each.duckdb or chr(34) + each.name + chr(34)} AS "{each.name}"' for each in wanted)


def _empty(table: SqlTable, wanted: Sequence[Column]) -> pa.Table:
    """Return a table without rows, with the columns that the expressions of `wanted` use."""
    # `Schema.empty_table` imports pandas, which takes half a CPU-second.
    return pa.Table.from_batches([], pa.schema([(name, type_of(table, name)) for name in sources_of(wanted)]))


@dataclass
class _Reading:
    """Reads the files of tables, and counts files and bytes."""

    runtime: Runtime
    period: tuple[datetime, datetime]
    result: SqlResult
    progress: Progress
    total: int
    files: int = 0
    size: int = 0
    lacking: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, table: SqlTable, wanted: Sequence[Column], files: Sequence[TableFile]) -> Iterator[pa.Table]:
        """Yield the rows of files within the time range, with the columns that the expressions of `wanted` use.

        A file that cannot be read is skipped, and its error is kept. Raises UserError once there are too many bytes.
        """
        names = sources_of(wanted)
        with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="sql") as threads:
            for group in _groups(files):
                reads = [threads.submit(copy_context().run, self._read, table, names, each) for each in group]
                for read in reads:
                    check_cancelled()
                    yield from self._counted(read.result())
                self.files += len(group)
                self.progress(self.files, self.total)

    def _counted(self, tables: list[pa.Table] | str) -> Iterator[pa.Table]:
        if isinstance(tables, str):
            self.result.unreadable.append(tables)
            return
        if self.size > MAX_BYTES:
            raise UserError(f"the query reads more than {MAX_BYTES >> 20:,} MB of columns. {_NARROWER}")
        yield from tables

    def _read(self, table: SqlTable, names: Sequence[str], file: TableFile) -> list[pa.Table] | str:
        """Return the tables of a file, or the error if it cannot be read.

        All threads together stop at the maximum: each file of a group alone may have nearly as many bytes.
        """
        found: list[pa.Table] = []
        try:
            for each in read_file(self.runtime.store, table, names, file, self.period, self._count_lacking):
                found.append(each)
                with self._lock:
                    self.size += each.nbytes
                if self.size > MAX_BYTES:
                    break  # the caller refuses these
        except _UNREADABLE as error:
            return str(error)
        return found

    def _count_lacking(self, rows: int) -> None:
        with self._lock:
            self.lacking += rows


def _groups(files: Sequence[TableFile]) -> Iterator[list[TableFile]]:
    """Yield the files in groups that are read at the same time."""
    group: list[TableFile] = []
    for file in files:
        if group and (len(group) == _FILES_AT_ONCE or sum(each.rows for each in group) + file.rows > _ROWS_AT_ONCE):
            yield group
            group = []
        group.append(file)
    if group:
        yield group
