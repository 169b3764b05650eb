"""Rows of a table as Python values."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from eventbridge.store.columns import plain_rows

_AT = datetime(2026, 11, 22, 8, 0, 0, 123456, tzinfo=UTC)
_TIME = pa.timestamp("us", tz="UTC")


def test_times_are_aware_and_in_utc_however_deep_they_lie() -> None:
    """A time, one within a list of structs, and an absent one come as Arrow would give them."""
    rows = [
        {"name": "a", "at": _AT, "attempts": [{"started_at": _AT, "code": 410}, {"started_at": None, "code": None}]},
        {"name": None, "at": None, "attempts": []},
    ]
    attempts = pa.list_(pa.struct([pa.field("started_at", _TIME), pa.field("code", pa.int32())]))
    table = pa.Table.from_pylist(rows, pa.schema([("name", pa.string()), ("at", _TIME), ("attempts", attempts)]))

    found = plain_rows(table)

    assert rows == found == table.to_pylist()
    assert found[0]["at"].tzinfo is UTC
