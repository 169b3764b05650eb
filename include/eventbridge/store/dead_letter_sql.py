"""Dead letters as a table of SQL, in a DuckDB that has nothing else: what it is asked about is read for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from eventbridge.errors import UserError
from eventbridge.store import schemas
from eventbridge.store.sql_sandbox import MEMORY, in_sandbox, lock

#: Columns that are always read: they make up `name` and `given_up_at`.
_NEEDED = ("delivery_id", "bus", "topic", "broker", "queue_id", "offset", "arrived_at", "last_attempt_at", "batch_id")

#: How columns are shown that are bytes in the files.
_AS_TEXT = {
    "delivery_id": "hex(delivery_id)::UUID::VARCHAR",
    "event": "try(decode(event)::JSON)",
    "request": "try(decode(request))",
}
_NAME = (
    """coalesce(hex(delivery_id)::UUID::VARCHAR, concat_ws('/', bus, topic, nullif(broker, ''), queue_id, "offset"))"""
)

#: What tells one dead letter from every other: one event may die in a batch twice, at two places of its bus.
KEY = ("batch_id", "name", "topic", "broker", "queue_id", "offset")

Key = tuple[Any, ...]
#: Returns the named columns of a dead letter file; None: it is passed over.
Read = Callable[[str, Sequence[str]], pa.Table | None]


def keys_where(read: Read, paths: Sequence[str], condition: str) -> set[Key]:
    """Return the keys (values of the columns KEY) of the dead letters in these files that meet an SQL condition.

    The condition may speak of the columns of schema DEAD_LETTER, of `name` and `given_up_at`, and of the table
    `dead_letters`; ids and `request` are text there, `event` is JSON, null if it is none. DuckDB sees the named files
    and nothing else: no other file, no network. Raises UserError for what is not a condition, and what `read` raises.
    """
    columns = ", ".join(f'"{name}"' for name in KEY)
    # on a line of its own: a comment at the condition's end must not take the bracket with it
    query = f"SELECT {columns} FROM dead_letters WHERE (\n{condition}\n)"
    # what only ends the brackets of a WHERE, such as `true) LIMIT (1`, has no place in a list of columns
    table = _run(read, paths, query, f"SELECT (\n{condition}\n) AS met FROM dead_letters", condition)
    return set(zip(*(table[name].to_pylist() for name in KEY), strict=True))


def _run(read: Read, paths: Sequence[str], query: str, as_column: str, written: str) -> pa.Table:
    def found(connection: duckdb.DuckDBPyConnection) -> pa.Table:
        _fill(connection, read, paths, _columns_in(written))
        lock(connection)
        if any(len(connection.extract_statements(each)) != 1 for each in (query, as_column)):
            raise UserError(f"{written!r} is not a condition in SQL but several statements. Write one condition.")
        return connection.sql(query).to_arrow_table()

    try:
        return in_sandbox(found)
    except duckdb.OutOfMemoryException as error:
        raise UserError(
            f"the columns of all dead letters that this condition names do not fit into {MEMORY} of memory. "
            "Name fewer of the long ones: event, request, attempts."
        ) from error
    except duckdb.Error as error:
        message = str(error).split("\n\nLINE")[0]
        raise UserError(
            f"{written!r} is not a condition in SQL on dead letters: {message}. "
            "The columns are those of `eventbridge dead-letters show --json`."
        ) from error


def _fill(connection: duckdb.DuckDBPyConnection, read: Read, paths: Sequence[str], columns: list[str]) -> None:
    # Read here and not by DuckDB through Arrow's datasets: those call back into Python, under locks of DuckDB's.
    for number, path in enumerate([None, *paths]):
        wanted = schemas.DEAD_LETTER.names if path is None else columns
        shown = ", ".join(f'{_AS_TEXT.get(name, _quoted(name))} AS "{name}"' for name in wanted)
        select = f"SELECT {_NAME} AS name, {shown}, coalesce(last_attempt_at, arrived_at) AS given_up_at FROM part"
        table = schemas.DEAD_LETTER.empty_table() if path is None else read(path, columns)
        if table is None:
            continue
        connection.register("part", table)
        verb = "INSERT INTO dead_letters BY NAME" if number else "CREATE TABLE dead_letters AS"
        connection.execute(f"{verb} {select}")
        connection.unregister("part")


def _columns_in(condition: str) -> list[str]:
    """Return the columns that are to be read: those a condition mentions, or all; the others are null."""
    words = set(re.findall(r"\w+", condition.lower()))
    everything = "*" in condition or "columns" in words
    return [name for name in schemas.DEAD_LETTER.names if everything or name in _NEEDED or name in words]


def _quoted(name: str) -> str:
    return f'"{name}"'
