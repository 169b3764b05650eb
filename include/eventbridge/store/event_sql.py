"""Archived events and their outcomes as an SQL table, to select those that meet a condition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.errors import UserError
from eventbridge.store.sql_sandbox import SqlLimited, SqlRefused, database
from eventbridge.store.sql_words import failed_on_data, refuse_without_data

#: The columns of the table `events` that a condition may use; the last five are null for rows without a delivery.
COLUMNS = pa.schema(
    [
        pa.field("rule", pa.string()),
        pa.field("target", pa.string()),
        pa.field("bus", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("broker", pa.string()),
        pa.field("partition_id", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("event_id", pa.string()),
        pa.field("type", pa.string()),
        pa.field("event", pa.binary()),
        pa.field("published_at", pa.timestamp("us", tz="UTC")),
        pa.field("arrived_at", pa.timestamp("us", tz="UTC")),
        pa.field("batch_id", pa.string()),
        pa.field("outcome", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("code", pa.int32()),
        pa.field("attempts", pa.int32()),
        pa.field("delivered_at", pa.timestamp("us", tz="UTC")),
    ]
)
_SHOWN = ", ".join(
    f'{"try(decode(event)::JSON)" if name == "event" else f"{chr(34)}{name}{chr(34)}"} AS "{name}"'
    for name in COLUMNS.names
)


def rows_where(events: pa.Table, condition: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows of a table with the columns COLUMNS that meet an SQL condition; `event` is JSON there.

    DuckDB sees the table, as `events`, and nothing else: no file, no network. Raises UserError if the text is not a
    condition, fails on an event, or takes too long or too much memory.
    """
    try:
        met = _met_by(events, condition)
    except SqlRefused:
        refuse_without_data(lambda: _met_by(COLUMNS.empty_table(), condition), condition, "archived events", _REMEDY)
        raise UserError(failed_on_data(condition, "an event")) from None
    except SqlLimited as error:
        raise UserError(f"{condition!r} {error}. Write a simpler condition.") from None
    if len(met) != events.num_rows:
        raise UserError(
            f"{condition!r} is not a condition in SQL on one event. Write one that is true or false for each."
        )
    return np.array([each is True for each in met], np.bool_)


_REMEDY = f"The columns are {', '.join(COLUMNS.names)}."


def _met_by(events: pa.Table, condition: str) -> list[bool | None]:
    # on its own line: a comment at the end of the condition must not hide the bracket
    query = f"SELECT (\n{condition}\n)::BOOLEAN AS met FROM events ORDER BY row_in_file"
    filling = f"CREATE TABLE events AS SELECT row_number() OVER () AS row_in_file, {_SHOWN} FROM part"
    with database() as opened:
        opened.fill(filling, events.cast(COLUMNS))
        (found,) = opened.ask([query], expression=condition)
    met: list[bool | None] = found["met"].to_pylist()
    return met
