"""Dead letters as an SQL table in a DuckDB that has nothing else: only the queried files and columns are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from eventbridge.errors import UserError
from eventbridge.store import schemas
from eventbridge.store.sql_sandbox import Database, SqlLimited, SqlRefused, database
from eventbridge.store.sql_words import failed_on_data, refuse_without_data

#: Columns that are always read: they make up `name` and `dead_lettered_at`.
_NEEDED = (
    "delivery_id",
    "bus",
    "topic",
    "broker",
    "partition_id",
    "offset",
    "arrived_at",
    "last_attempt_at",
    "batch_id",
)

#: SQL expressions that show the columns which hold bytes in the files.
_AS_TEXT = {
    "delivery_id": "hex(delivery_id)::UUID::VARCHAR",
    "event": "try(decode(event)::JSON)",
    "request": "try(decode(request))",
}
_PLACE = """concat_ws('/', bus, topic, nullif(broker, ''), partition_id, "offset")"""
#: The same name as `stages.dead_letters.selection.name_of`: the delivery or event, and which of its dead letters.
_SUBJECT = f"coalesce(hex(delivery_id)::UUID::VARCHAR, {_PLACE})"
_MARK = """left(sha256(concat_ws('/', batch_id, topic, broker, partition_id, "offset")), 8)"""
_NAME = f"{_SUBJECT} || '@' || {_MARK}"

#: The key of a dead letter: one event may be dead-lettered twice in a batch, at two places of its bus.
KEY = ("batch_id", "name", "topic", "broker", "partition_id", "offset")

Key = tuple[Any, ...]
#: Returns the named columns of a dead letter file; None: the file is skipped.
Read = Callable[[str, Sequence[str]], pa.Table | None]


def keys_where(read: Read, paths: Sequence[str], condition: str) -> set[Key]:
    """Return the keys (values of the columns KEY) of the dead letters in these files that meet an SQL condition.

    The condition may use the columns of schema DEAD_LETTER, `name`, `dead_lettered_at`, and the table `dead_letters`;
    ids and `request` are text there, `event` is JSON, null if it is not JSON. DuckDB sees the named files and nothing
    else: no other file, no network. Raises UserError if the text is not a condition, fails on a dead letter, or takes
    too long or too much memory; passes on the exceptions of `read`.
    """
    try:
        table = _chosen(read, paths, condition)
    except SqlRefused:
        remedy = "The columns are those of `eventbridge dead-letters show --json`."
        refuse_without_data(lambda: _chosen(read, (), condition), condition, "dead letters", remedy)
        raise UserError(failed_on_data(condition, "a dead letter")) from None
    except SqlLimited as error:
        raise UserError(
            f"{condition!r} {error}. Write a simpler condition, or one that names fewer of the long columns: event, "
            "request, attempts."
        ) from None
    return set(zip(*(table[name].to_pylist() for name in KEY), strict=True))


def _chosen(read: Read, paths: Sequence[str], condition: str) -> pa.Table:
    columns = ", ".join(f'"{name}"' for name in KEY)
    # on its own line: a comment at the end of the condition must not hide the bracket
    query = f"SELECT {columns} FROM dead_letters WHERE (\n{condition}\n)"
    # text that only closes the brackets of a WHERE, such as `true) LIMIT (1`, is not an expression by itself
    with database() as opened:
        _fill(opened, read, paths, _columns_in(condition))
        (found,) = opened.ask([query], expression=condition)
    return found


def _fill(opened: Database, read: Read, paths: Sequence[str], columns: list[str]) -> None:
    for number, path in enumerate([None, *paths]):
        wanted = schemas.DEAD_LETTER.names if path is None else columns
        shown = ", ".join(f'{_AS_TEXT.get(name, _quoted(name))} AS "{name}"' for name in wanted)
        select = f"SELECT {_NAME} AS name, {shown}, coalesce(last_attempt_at, arrived_at) AS dead_lettered_at FROM part"
        table = schemas.DEAD_LETTER.empty_table() if path is None else read(path, columns)
        if table is not None:
            verb = "INSERT INTO dead_letters BY NAME" if number else "CREATE TABLE dead_letters AS"
            opened.fill(f"{verb} {select}", table)


def _columns_in(condition: str) -> list[str]:
    """Return the columns to read: those that a condition mentions, or all; the others are null."""
    words = set(re.findall(r"\w+", condition.lower()))
    everything = "*" in condition or "columns" in words
    return [name for name in schemas.DEAD_LETTER.names if everything or name in _NEEDED or name in words]


def _quoted(name: str) -> str:
    return f'"{name}"'
