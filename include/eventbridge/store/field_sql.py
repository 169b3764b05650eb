"""Counts the values of events at given paths, for all events at once, in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from eventbridge.errors import StoreError
from eventbridge.policy.quality import FieldCounts
from eventbridge.store.sql_sandbox import SqlLimited, SqlRefused, database

_COUNT = """
SELECT count(*), count(*) FILTER (WHERE coalesce(json_type(value), 'NULL') = 'NULL'), count(finite), min(finite),
       max(finite)
FROM (SELECT value, CASE WHEN isfinite(number) THEN number END AS finite
      FROM (SELECT value, CASE WHEN json_type(value) IN ('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT')
                               THEN TRY_CAST(value AS DOUBLE) END AS number
            FROM (SELECT {value} AS value FROM events)))
"""


def count_fields(events: pa.Table, paths: Mapping[str, tuple[str | int, ...]]) -> dict[str, FieldCounts]:
    """Return the counts of events at each path, given with its steps; column `body` holds the JSON text of an event.

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
        raise StoreError(f"archived events cannot be counted: it {error}") from None
    rows = [[column[0].as_py() for column in table.columns] for table in found]
    return {path: FieldCounts(*row) for path, row in zip(paths, rows, strict=True)}


def _step(step: str | int) -> str:
    """Return a step of a path as SQL: the number of an element, or a JSON pointer, which can name any member."""
    if isinstance(step, int):
        return f"({step})"
    pointer = "/" + step.replace("~", "~0").replace("/", "~1")
    return "'" + pointer.replace("'", "''") + "'"
