"""Payloads become rows of typed columns; a payload that does not fit is rejected alone, with the reason."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from eventbridge.targets.arrow_rows import MAX_COLUMNS, ConvertedRows, RowConverter

NO_OBJECT = "a row is a JSON object, but the payload is not. Let the transform of the target produce one"


def converted(columns: Any, *payloads: object, **options: str) -> ConvertedRows:
    """Return what becomes of payloads, given as bytes, or as the values of their JSON."""
    bodies = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    ids = [uuid.uuid4().bytes for _ in bodies]
    converter = RowConverter(pa.schema(columns), "orders", **options)
    return converter.convert(pa.array(ids, pa.binary()), pa.array(bodies, pa.binary()))


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (pa.string(), b'"\\u00fc"', "ü"),
        (pa.string(), b'{"a": 1.50}', '{"a": 1.50}'),
        (pa.large_string(), b" 12345678901234567890.10 ", "12345678901234567890.10"),
        (pa.int64(), b"-9223372036854775808", -(2**63)),
        (pa.uint8(), b"255", 255),
        (pa.float64(), b"1", 1.0),
        (pa.decimal128(10, 2), b"1.25", Decimal("1.25")),
        (pa.decimal128(38, 0), b"12345678901234567890123456789", Decimal("12345678901234567890123456789")),
        (pa.bool_(), b"true", True),
        (pa.date32(), b'"2026-02-28"', date(2026, 2, 28)),
        (pa.timestamp("us", "UTC"), b'"2026-01-01T00:00:00+02:00"', datetime(2025, 12, 31, 22, tzinfo=UTC)),
        (pa.timestamp("us"), b'"2026-01-01T00:00:00+02:00"', datetime(2025, 12, 31, 22)),  # noqa: DTZ001
        (pa.binary(), b'"aGk="', b"hi"),
        (pa.list_(pa.int64()), b"[1, null]", [1, None]),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), b'{"a": 1}', {"a": 1, "b": None}),
        (pa.map_(pa.string(), pa.float64()), b'{"a": 1}', [("a", 1.0)]),
        (pa.struct([("a", pa.list_(pa.decimal128(10, 2)))]), b'{"a": [1.5]}', {"a": [Decimal("1.50")]}),
        (pa.duration("s"), b"null", None),
    ],
    ids=str,
)
def test_a_value_arrives_in_the_type_of_its_column(kind: pa.DataType, written: bytes, value: object) -> None:
    """Exactly as it was written; a column of strings takes the JSON text of any value."""
    rows = converted([("v", kind)], b'{"v":' + written + b"}", b"{}")
    assert rows.rejected == {}
    assert rows.table["v"].to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("kind", "written", "why"),
    [
        (pa.int32(), b"2147483648", "Expected `int` <= 2147483647 - at `$.v`"),
        (pa.int64(), b"99999999999999999999", "Expected `int` <= 9223372036854775807 - at `$.v`"),
        (pa.int64(), b"1.5", "Expected `int | null`, got `float` - at `$.v`"),
        (pa.int64(), b'"1"', "Expected `int | null`, got `str` - at `$.v`"),
        (pa.float32(), b"1e300", "at `$.v`"),
        (pa.float64(), b"1e999", "Number out of range"),
        (pa.decimal128(10, 2), b"1.234", "`decimal128(10, 2)` cannot hold the value - at `$.v`"),
        (pa.decimal128(10, 2), b"123456789.5", "`decimal128(10, 2)` cannot hold the value - at `$.v`"),
        (pa.decimal128(10, 2), b"1e-400000000", "`decimal128(10, 2)` cannot hold the value - at `$.v`"),
        (
            pa.struct([("a", pa.list_(pa.decimal128(10, 2)))]),
            b'{"a": [1e-400000000]}',
            "cannot hold the value - at `$.v`",
        ),
        (pa.map_(pa.string(), pa.decimal128(10, 2)), b'{"a": 1e-400000000}', "cannot hold the value - at `$.v`"),
        (pa.decimal128(10, 2), b"1e400", "`decimal128(10, 2)` cannot hold the value - at `$.v`"),
        (pa.decimal128(10, 2), b'"NaN"', "`decimal128(10, 2)` cannot hold the value - at `$.v`"),
        (pa.bool_(), b"1", "got `int` - at `$.v`"),
        (pa.date32(), b'"2026-02-30"', "at `$.v`"),
        (pa.timestamp("us", "UTC"), b'"2026-01-01T00:00:00"', "`datetime` with a timezone component - at `$.v`"),
        (pa.binary(), b'"?"', "at `$.v`"),
        (pa.list_(pa.int64()), b'[1, "a"]', "at `$.v[1]`"),
        (pa.struct([("a", pa.int8())]), b'{"a": 1, "b": 2}', "unknown field `b` - at `$.v`"),
        (pa.struct([pa.field("a", pa.int8(), False)]), b"{}", "missing required field `a` - at `$.v`"),
        (pa.struct([pa.field("a", pa.int8(), False)]), b'{"a": null}', "at `$.v.a`"),
        (pa.list_(pa.field("element", pa.int8(), False)), b"[null]", "at `$.v[0]`"),
        (pa.map_(pa.int64(), pa.int64()), b'{"1": 1}', "at `$.v`"),
        (pa.duration("s"), b"1", "Expected `null`, got `int` - at `$.v`"),
    ],
    ids=str,
)
def test_a_value_that_its_column_cannot_hold_costs_its_row_alone(kind: pa.DataType, written: bytes, why: str) -> None:
    """The reason names the member, and never shows the value."""
    rows = converted([("v", kind), ("n", pa.int64())], {"n": 1}, b'{"v":' + written + b"}", {"n": 2})
    assert rows.table["n"].to_pylist() == [1, 2]
    (problem,) = rows.rejected.items()
    assert problem[0] == 1
    assert problem[1].startswith("the payload does not fit the columns of the table: ")
    assert why in problem[1]


@pytest.mark.parametrize(
    "payload",
    [b"", b"[1]", b'"x"', b"no", b'{"n":1} {"n":2}', b'{"n":1}\n{"n":2}', b'{"n":\xff}', b"[" * 100_000, b'{"n":NaN}'],
    ids=lambda payload: payload[:20].decode("latin-1"),
)
def test_a_payload_that_is_no_object_is_no_row(payload: bytes) -> None:
    """Whatever it is, it never moves the values of others to another delivery."""
    columns = [("delivery_id", pa.string()), ("n", pa.int64())]
    assert converted(columns, payload).rejected == {0: NO_OBJECT}
    rows = converted(columns, {"n": 1}, payload, {"n": 2})
    assert rows.rejected == {1: NO_OBJECT}
    assert rows.table["n"].to_pylist() == [1, 2]
    alone = converted([("delivery_id", pa.string()), ("n", pa.int64())], payload)
    assert (alone.rejected, alone.table.num_rows) == ({0: NO_OBJECT}, 0)


def test_ids_of_deliveries_stay_with_their_rows() -> None:
    """A member of that name does not replace them."""
    ids = [uuid.uuid4() for _ in range(4)]
    bodies = [b'{"n":0,"delivery_id":"x"}', b"no", b'{"n":2,"delivery_id":{"a":1}}', b'{"n":3}']
    converter = RowConverter(pa.schema([("n", pa.int64()), ("delivery_id", pa.string())]), "orders")
    rows = converter.convert(pa.array([each.bytes for each in ids], pa.binary()), pa.array(bodies, pa.binary()))
    assert rows.table.to_pylist() == [{"n": n, "delivery_id": str(ids[n])} for n in (0, 2, 3)]


def test_rows_of_several_slices_keep_their_order_and_ids() -> None:
    """Rows that need a second look, new columns and rejected rows lie anywhere among the others."""
    count = 20_000
    ids = [uuid.uuid4() for _ in range(count)]

    def body(number: int) -> bytes:
        if number % 1_000 == 7:
            return b"no"
        more = ', "later": 1' if number % 3_000 == 0 else ""
        return f'{{"text": {number if number % 500 == 0 else json.dumps(str(number))}{more}}}'.encode()

    schema = pa.schema([("delivery_id", pa.string()), ("text", pa.string())])
    converter = RowConverter(schema, "orders", new_columns="add")
    bodies = pa.array([body(number) for number in range(count)], pa.binary())
    rows = converter.convert(pa.array([each.bytes for each in ids], pa.binary(16)), bodies)

    kept = [number for number in range(count) if number % 1_000 != 7]
    assert sorted(rows.rejected) == [number for number in range(count) if number % 1_000 == 7]
    assert rows.table["text"].to_pylist() == [str(number) for number in kept]
    assert rows.table["delivery_id"].to_pylist() == [str(ids[number]) for number in kept]
    assert [number for number, later in zip(kept, rows.table["later"].to_pylist(), strict=True) if later] == [
        number for number in kept if number % 3_000 == 0
    ]


def test_members_without_a_column_are_refused_ignored_or_added() -> None:
    """An added column holds all values of its member."""
    columns = [("City", pa.string())]
    payloads = [{"City": "Ulm"}, {"a": 1, "b": [1], "c": True, "d": "x"}, {"a": 2.5, "e": 10**20, "f": None}]
    refused, ignored = converted(columns, *payloads), converted(columns, *payloads, new_columns="ignore")
    added = converted(columns, *payloads, new_columns="add")

    assert "the table 'orders' has no column 'a'. Add it" in refused.rejected[1]
    assert (sorted(refused.rejected), refused.table.num_rows) == ([1, 2], 1)
    assert (ignored.rejected, ignored.table.to_pylist()[1:]) == ({}, [{"City": None}] * 2)
    assert {each.name: str(each.type) for each in added.added} == {
        "a": "double", "b": "string", "c": "bool", "d": "string", "e": "string",
    }  # fmt: skip
    assert added.rejected == {}
    assert [row["a"] for row in added.table.to_pylist()] == [None, 1.0, 2.5]
    assert added.table["e"].to_pylist()[2] == "100000000000000000000"


def test_names_that_a_table_should_not_get_are_refused() -> None:
    """Odd characters, a second spelling of a column, and more columns than a table should have."""
    many = {f"c{number}": 1 for number in range(MAX_COLUMNS)}
    rows = converted([("City", pa.string())], {"city": "x"}, {"a b": 1}, {"V": 1}, {"v": 1}, many, new_columns="add")
    assert "'city' differs from the column 'City' only in case" in rows.rejected[0]
    assert "'a b' cannot be the name of a column" in rows.rejected[1]
    metadata = converted([], {"_file": 1}, {"_Change_Type": 1}, {"_id": 1}, new_columns="add")
    assert (list(metadata.rejected), metadata.added) == ([0, 1], [pa.field("_id", pa.int64())])
    assert "'v' differs from the column 'V' only in case" in rows.rejected[3]
    assert f"would get more than {MAX_COLUMNS} columns" in rows.rejected[4]
    assert rows.table.num_columns == MAX_COLUMNS


def test_a_column_that_takes_no_null_needs_its_value() -> None:
    """A payload without it is rejected."""
    rows = converted([("n", pa.int64()), pa.field("must", pa.string(), False)], {"n": 1}, {"must": "x"})
    assert rows.rejected == {0: "the payload has no value for 'must', whose column takes no null"}
    assert rows.table.to_pylist() == [{"n": None, "must": "x"}]
