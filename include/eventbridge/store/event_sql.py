"""Archived events, with what became of them, as a table of SQL: which of them meet a condition."""

from __future__ import annotations

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventbridge.errors import UserError
from eventbridge.store.sql_sandbox import in_sandbox, lock

#: What a condition may speak of, as the table `events` is made; the last five are null for what was not a delivery.
COLUMNS = pa.schema(
    [
        pa.field("rule", pa.string()),
        pa.field("target", pa.string()),
        pa.field("bus", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("broker", pa.string()),
        pa.field("queue_id", pa.int32()),
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
    """Return which rows of a table with the columns COLUMNS meet an SQL condition; `event` is JSON there.

    DuckDB sees the table, as `events`, and nothing else: no file, no network. Raises UserError for what is not a
    condition.
    """
    # on a line of its own: a comment at the condition's end must not take the bracket with it
    query = f"SELECT (\n{condition}\n)::BOOLEAN AS met FROM events ORDER BY row_in_file"

    def met_by(connection: duckdb.DuckDBPyConnection) -> list[bool | None]:
        connection.register("part", events.cast(COLUMNS))
        connection.execute(f"CREATE TABLE events AS SELECT row_number() OVER () AS row_in_file, {_SHOWN} FROM part")
        connection.unregister("part")
        lock(connection)
        duckdb.SQLExpression(condition)  # one expression by itself, not what only ends the brackets of the query
        found: list[bool | None] = connection.sql(query).to_arrow_table()["met"].to_pylist()
        return found

    try:
        met = in_sandbox(met_by)
    except duckdb.Error as error:
        message = str(error).split("\n\nLINE")[0]
        raise UserError(
            f"{condition!r} is not a condition in SQL on archived events: {message}. "
            f"The columns are {', '.join(COLUMNS.names)}."
        ) from error
    if len(met) != events.num_rows:
        raise UserError(
            f"{condition!r} is not a condition in SQL on one event. Write one that is true or false for each."
        )
    return np.array([each is True for each in met], np.bool_)
