"""Runs SQL queries over events and dead letters; DuckDB gets only the files and columns that a query needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.errors import StoreError, UserError
from eventbridge.policy.quality import FieldCounts
from eventbridge.store import schemas
from eventbridge.store.sql_sandbox import Database, SqlLimited, SqlRefused, database

_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")

#: The columns of the table `events` that a condition may use; the last five are null for rows without a delivery.
COLUMNS = pa.schema(
    [
        ("rule", _TEXT), ("target", _TEXT), ("bus", _TEXT), ("topic", _TEXT), ("broker", _TEXT),
        ("partition_id", pa.int32()), ("offset", pa.int64()), ("source", _TEXT), ("event_id", _TEXT), ("type", _TEXT),
        ("event", pa.binary()), ("published_at", _TIME), ("arrived_at", _TIME), ("batch_id", _TEXT),
        ("outcome", _TEXT), ("reason", _TEXT), ("code", pa.int32()), ("attempts", pa.int32()), ("delivered_at", _TIME),
    ]
)  # fmt: skip
_SHOWN = ", ".join(
    f'{"try(decode(event)::JSON)" if name == "event" else f"{chr(34)}{name}{chr(34)}"} AS "{name}"'
    for name in COLUMNS.names
)
_REMEDY = f"The columns are {', '.join(COLUMNS.names)}."

#: Columns that are always read because they make up `name` and `dead_lettered_at`.
_NEEDED = (
    "delivery_id", "bus", "topic", "broker", "partition_id", "offset", "arrived_at", "last_attempt_at", "batch_id",
)  # fmt: skip

#: SQL expressions that convert columns of bytes to text or JSON.
_AS_TEXT = {
    "delivery_id": "hex(delivery_id)::UUID::VARCHAR",
    "event": "try(decode(event)::JSON)",
    "request": "try(decode(request))",
}
_POSITION = """concat_ws('/', bus, topic, nullif(broker, ''), partition_id, "offset")"""

#: SQL expressions for the name that `dead_letters.selection.name_of` returns: the subject, `@` and the mark.
_SUBJECT = f"coalesce(hex(delivery_id)::UUID::VARCHAR, {_POSITION})"
_MARK = """left(sha256(concat_ws('/', batch_id, topic, broker, partition_id, "offset")), 8)"""
_NAME = f"{_SUBJECT} || '@' || {_MARK}"

#: The key of a dead letter. It includes the position, because an event at two positions may be dead-lettered twice in a
#: batch.
KEY = ("batch_id", "name", "topic", "broker", "partition_id", "offset")
Key = tuple[Any, ...]

#: A function that returns the named columns of a dead letter file, or None if the file is skipped.
Read = Callable[[str, Sequence[str]], pa.Table | None]
_COUNT = """
SELECT count(*), count(*) FILTER (WHERE coalesce(json_type(value), 'NULL') = 'NULL'), count(finite), min(finite),
       max(finite)
FROM (SELECT value, CASE WHEN isfinite(number) THEN number END AS finite
      FROM (SELECT value, CASE WHEN json_type(value) IN ('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT')
                               THEN TRY_CAST(value AS DOUBLE) END AS number
            FROM (SELECT {value} AS value FROM events)))
"""


def rows_where(events: pa.Table, condition: str) -> npt.NDArray[np.bool_]:
    """Return a mask of those rows of a table with COLUMNS that meet an SQL condition; `event` is JSON there.

    DuckDB gets the table, as `events`, and nothing else: no file, no network. Raises UserError if `condition` is
    invalid, fails on an event, or takes too long or too much memory.
    """
    try:
        met = _evaluate(events, condition)
    except SqlRefused:
        _refuse_without_data(lambda: _evaluate(COLUMNS.empty_table(), condition), condition, "archived events", _REMEDY)
        raise UserError(_data_failure(condition, "an event")) from None
    except SqlLimited as error:
        raise UserError(f"{condition!r} {error}. Write a simpler condition.") from None
    if len(met) != events.num_rows:
        raise UserError(
            f"{condition!r} is not an SQL condition on one event. Write one that is true or false for each."
        )
    return np.array([each is True for each in met], np.bool_)


def _evaluate(events: pa.Table, condition: str) -> list[bool | None]:
    # The closing bracket is on its own line, so that a comment at the end of the condition does not hide it.
    query = f"SELECT (\n{condition}\n)::BOOLEAN AS met FROM events ORDER BY row_in_file"
    filling = f"CREATE TABLE events AS SELECT row_number() OVER () AS row_in_file, {_SHOWN} FROM part"
    with database() as opened:
        opened.fill(filling, events.cast(COLUMNS))
        (found,) = opened.ask([query], expression=condition)
    met: list[bool | None] = found["met"].to_pylist()
    return met


def keys_where(read: Read, paths: Sequence[str], condition: str) -> set[Key]:
    """Return the keys (values of the columns KEY) of the dead letters in these files that meet an SQL condition.

    The condition may use the columns of the DEAD_LETTER schema, `name`, `dead_lettered_at`, and the table
    `dead_letters`; in it, ids and `request` are strings, and `event` is JSON, or null if the event is not JSON. DuckDB
    gets the named files and nothing else: no other file, no network. Raises UserError if `condition` is invalid, fails
    on a dead letter, or takes too long or too much memory. Also raises the exceptions of `read`.
    """
    try:
        table = _choose(read, paths, condition)
    except SqlRefused:
        remedy = "The columns are those of `eventbridge dead-letters show --json`."
        _refuse_without_data(lambda: _choose(read, (), condition), condition, "dead letters", remedy)
        raise UserError(_data_failure(condition, "a dead letter")) from None
    except SqlLimited as error:
        raise UserError(
            f"{condition!r} {error}. Write a simpler condition, or one that names fewer of the long columns: event, "
            "request, attempts."
        ) from None
    return set(zip(*(table[name].to_pylist() for name in KEY), strict=True))


def _choose(read: Read, paths: Sequence[str], condition: str) -> pa.Table:
    columns = ", ".join(f'"{name}"' for name in KEY)
    # The closing bracket is on its own line, so that a comment at the end of the condition does not hide it.
    query = f"SELECT {columns} FROM dead_letters WHERE (\n{condition}\n)"
    # `expression` rejects a condition that is only valid between these brackets, such as `true) LIMIT (1`.
    with database() as opened:
        _fill(opened, read, paths, _columns_in(condition))
        (found,) = opened.ask([query], expression=condition)
    return found


def _fill(opened: Database, read: Read, paths: Sequence[str], columns: list[str]) -> None:
    for number, path in enumerate([None, *paths]):
        wanted = schemas.DEAD_LETTER.names if path is None else columns
        shown = ", ".join(f'{_AS_TEXT.get(name, _quote(name))} AS "{name}"' for name in wanted)
        select = f"SELECT {_NAME} AS name, {shown}, coalesce(last_attempt_at, arrived_at) AS dead_lettered_at FROM part"
        table = schemas.DEAD_LETTER.empty_table() if path is None else read(path, columns)
        if table is not None:
            verb = "INSERT INTO dead_letters BY NAME" if number else "CREATE TABLE dead_letters AS"
            opened.fill(f"{verb} {select}", table)


def _columns_in(condition: str) -> list[str]:
    """Return the columns to read for a condition: those that it mentions, and those of the key; the others are null.

    All columns are read if the condition contains `*` or `columns`.
    """
    words = set(re.findall(r"\w+", condition.lower()))
    everything = "*" in condition or "columns" in words
    return [name for name in schemas.DEAD_LETTER.names if everything or name in _NEEDED or name in words]


def _quote(name: str) -> str:
    return f'"{name}"'


def count_fields(events: pa.Table, paths: Mapping[str, tuple[str | int, ...]]) -> dict[str, FieldCounts]:
    """Return the counts of events at each path, which `paths` maps to its steps; `body` holds an event's JSON text.

    Numbers are compared in double precision; a number that is too large for that does not count as a number.
    Raises StoreError if an archived event is not JSON.
    """

    queries = [
        _COUNT.format(value="event" + "".join(f" -> {_step(step)}" for step in steps)) for steps in paths.values()
    ]
    try:
        with database() as opened:
            opened.fill("CREATE TABLE events AS SELECT decode(body)::JSON AS event FROM part", events)
            found = [opened.ask([query])[0] for query in queries]
    except SqlRefused:
        raise StoreError("archived events cannot be counted: one of them is not JSON") from None
    except SqlLimited as error:
        raise StoreError(f"archived events cannot be counted: the query {error}") from None
    rows = [[column[0].as_py() for column in table.columns] for table in found]
    return {path: FieldCounts(*row) for path, row in zip(paths, rows, strict=True)}


def _step(step: str | int) -> str:
    """Return a step of a path as SQL: the number of an element, or a JSON pointer, which can name any member."""
    if isinstance(step, int):
        return f"({step})"
    pointer = "/" + step.replace("~", "~0").replace("/", "~1")
    return "'" + pointer.replace("'", "''") + "'"


def _refuse_without_data(ask: Callable[[], object], condition: str, of: str, remedy: str) -> None:
    """Raise UserError with DuckDB's message for a condition that it rejects without data; `ask` queries no row."""
    try:
        ask()
    except SqlRefused as error:
        raise UserError(f"{condition!r} is not an SQL condition on {of}: {error}. {remedy}") from None


def _data_failure(condition: str, one: str) -> str:
    """Return the message for a valid condition that fails on the content of an event or a dead letter."""
    return (
        f"{condition!r} fails on {one}: a value cannot be cast, or a function rejects a value. "
        "Write TRY_CAST(... AS ...), or TRY(...) around the function."
    )
