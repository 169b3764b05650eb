"""Tables in the store: what is refused at writing, what is read of a file, and what damage is noticed."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventbridge.errors import NewerFormatError, StoreFileDamaged, StoreFileMissing
from eventbridge.model import rowset
from eventbridge.processes import Cancelled, cancelled
from eventbridge.store import schemas
from eventbridge.store.file import FileStore
from eventbridge.store.parquet import (
    TableWriter,
    count_rows,
    parts_of,
    read_rows,
    read_span,
    read_table,
    write_table,
)
from eventbridge.testing.store import InMemoryStore

SMALL = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string())])
AT = datetime(2026, 5, 17, 10, 30, 0, 123456, tzinfo=UTC)


def small(rows: int) -> pa.Table:
    """Return a table of `rows` rows whose column n counts from 0."""
    return pa.table({"n": range(rows), "text": [f"row {n}" for n in range(rows)]}, schema=SMALL)


def stored(rows: int, row_group_rows: int = 10) -> InMemoryStore:
    """Return a store whose file x has that many rows in groups of that size."""
    store = InMemoryStore()
    write_table(store, "x", small(rows), row_group_rows=row_group_rows, schema=SMALL)
    return store


class CountingFile(io.BytesIO):
    """A file that adds up what is read of it."""

    bytes_read = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


class CountingStore(InMemoryStore):
    """A store that keeps its last opened file, to be asked what was read of it."""

    opened: CountingFile

    def open(self, path: str) -> pa.NativeFile:
        self.opened = CountingFile(self.get(path))
        return pa.PythonFile(self.opened, mode="r")


@pytest.mark.parametrize("rows", [0, 1, 10, 25])
def test_a_table_comes_back_equal(rows: int) -> None:
    """Rows, order, types and nullability survive, also of a table without rows."""
    table = read_table(stored(rows), "x")

    assert table.schema.equals(SMALL)
    assert table.equals(small(rows))


@pytest.mark.parametrize("folder", ["buffer", "deliveries", "outcomes", "settlements", "dead_letters"])
def test_every_schema_of_the_store_round_trips(folder: str, tmp_path: Path) -> None:
    """A row with every column filled, and one with every nullable column null, come back as they were."""
    schema = schemas.schema_of(f"{folder}/x")
    full = {field.name: example(field.type) for field in schema}
    bare = {field.name: None if field.nullable else example(field.type) for field in schema}
    table = pa.Table.from_pylist([full, bare], schema=schema)
    store = FileStore(tmp_path)
    write_table(store, f"{folder}/x.parquet", table)
    back = read_table(store, f"{folder}/x.parquet")

    assert back.schema.equals(schema)
    assert back.to_pylist() == [full, bare]


def example(kind: pa.DataType) -> object:
    """Return some value of an Arrow type that our schemas use."""
    if pa.types.is_list(kind):
        return [example(kind.value_type), example(kind.value_type)]
    if pa.types.is_struct(kind):
        return {field.name: example(field.type) for field in kind}
    by_type: dict[pa.DataType, object] = {
        pa.string(): "text \N{SNOWMAN}",
        pa.binary(): b"\x00\xff",
        pa.binary(16): bytes(range(16)),
        pa.bool_(): True,
        pa.int32(): 2**31 - 1,
        pa.int64(): 2**63 - 1,
        pa.float64(): 0.1,
        pa.timestamp("us", tz="UTC"): AT,
    }
    return by_type[kind]


@pytest.mark.parametrize(
    "rows",
    ["", "0", "24", "0-24", "3-5,12,20-22", "9-10", "5,15", "20-24", "10-19"],
)
def test_the_rows_of_a_set_come_in_ascending_order(rows: str) -> None:
    """read_rows gives exactly the named rows, whichever groups they lie in."""
    table = read_rows(stored(25), "x", rows)

    assert table["n"].to_pylist() == list(rowset.decode(rows))
    assert table.schema.equals(SMALL)


def test_results_of_spark_sql_are_no_deliveries() -> None:
    """A file of such a folder has columns of its own; one of deliveries that lacks theirs is damaged."""
    store, rows = InMemoryStore(), pa.table({"n": [1], "text": ["one"]}, schema=SMALL)
    write_table(store, "deliveries/date=2026-11-27/batch/run/sql/rule.parquet", rows, schema=SMALL)
    write_table(store, "deliveries/date=2026-11-27/batch/run/sql.parquet", rows, schema=SMALL)

    assert read_table(store, "deliveries/date=2026-11-27/batch/run/sql/rule.parquet")["n"].to_pylist() == [1]
    with pytest.raises(StoreFileDamaged, match="these columns are missing or have another type: delivery_id"):
        read_table(store, "deliveries/date=2026-11-27/batch/run/sql.parquet")


def test_columns_come_in_the_order_asked_for() -> None:
    """A list of columns selects and orders, with read_table and with read_rows."""
    store = stored(12)

    assert read_table(store, "x", ["text", "n"]).column_names == ["text", "n"]
    assert read_rows(store, "x", "11", ["text"]).to_pylist() == [{"text": "row 11"}]
    assert read_rows(store, "x", "", ["text"]).to_pylist() == []
    with pytest.raises(KeyError, match="nope"):
        read_table(store, "x", ["n", "nope"])


def test_only_the_row_groups_that_are_needed_are_read() -> None:
    """Of a file of a hundred groups, one row costs about one group and the footer."""
    rows, group = 10_000, 100
    store = CountingStore()
    table = pa.table({"n": range(rows), "text": [f"{n * 7919 % 10007:0200d}" for n in range(rows)]}, schema=SMALL)
    write_table(store, "x", table, row_group_rows=group, schema=SMALL)
    assert read_rows(store, "x", "5050")["n"].to_pylist() == [5050]
    one_row = store.opened.bytes_read
    assert count_rows(store, "x") == rows
    footer = store.opened.bytes_read
    read_table(store, "x")
    everything = store.opened.bytes_read

    assert one_row - footer < 2 * (everything - footer) / (rows / group)


def test_rows_beyond_the_file_are_damage() -> None:
    """A set that names more rows than there are does not belong to this file: never fewer rows in silence."""
    with pytest.raises(StoreFileDamaged, match="'x' has 25 rows; row 25 was requested"):
        read_rows(stored(25), "x", "3,25")


def test_counting_rows() -> None:
    """count_rows is the number of rows of all groups."""
    assert count_rows(stored(0), "x") == 0
    assert count_rows(stored(25), "x") == 25


def test_a_missing_table_is_missing() -> None:
    """All readers say that there is no such file."""
    store = InMemoryStore()
    for read in (lambda: read_table(store, "x"), lambda: read_rows(store, "x", "0"), lambda: count_rows(store, "x")):
        with pytest.raises(StoreFileMissing):
            read()


def test_create_writes_once() -> None:
    """With `create` the second writer gets an error, and changes nothing."""
    store = InMemoryStore()

    assert write_table(store, "x", small(1), create=True, schema=SMALL)
    assert not write_table(store, "x", small(2), create=True, schema=SMALL)
    assert count_rows(store, "x") == 1


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"n": [1]}), "lacks .*text"),
        (pa.table({"n": [1], "text": ["a"], "more": [1]}), "more"),
        (
            pa.table({"text": ["a"], "n": [1]}, schema=pa.schema([SMALL.field("text"), SMALL.field("n")])),
            "order differs",
        ),
        (pa.table({"n": [1.5], "text": ["a"]}), "n: double"),
        (pa.table({"n": [1], "text": ["a"]}), "n: int64"),
        (pa.table({"n": [1, None], "text": ["a", "b"]}, schema=SMALL), r"null in \['n'\]"),
    ],
)
def test_a_table_of_another_schema_is_refused(table: pa.Table, message: str) -> None:
    """Columns too few, too many, in another order, of another type or nullability, or nulls: nothing is written."""
    store = InMemoryStore()

    with pytest.raises(ValueError, match=message):
        write_table(store, "x", table, schema=SMALL)
    assert store.list("") == []


def test_the_folder_says_which_schema_is_meant() -> None:
    """Without a schema the one of the path's topmost folder counts; where no tables belong it must be given."""
    store = InMemoryStore()
    with pytest.raises(ValueError, match="lacks"):
        write_table(store, "outcomes/x", small(1))
    with pytest.raises(ValueError, match="tables belong below buffer"):
        write_table(store, "manifests/x", small(1))

    assert write_table(store, "outcomes/x", schemas.OUTCOME.empty_table())


def test_a_flipped_bit_in_any_page_is_noticed() -> None:
    """Values never change in silence: pages carry a checksum that is verified when they are read."""
    store = stored(25)
    whole = store.get("x")
    footer_starts = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    noticed = 0
    for position in range(4, footer_starts):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        store.put("x", bytes(damaged))
        try:
            unnoticed = read_table(store, "x")
        except StoreFileDamaged:
            noticed += 1
        else:
            assert unnoticed.equals(small(25))

    assert noticed > (footer_starts - 4) / 2


def test_a_flipped_bit_in_the_footer_never_gives_other_columns_in_silence() -> None:
    """A footer has no checksum: a column of another name or type is damage, not fewer columns and not another error."""
    path = "settlements/x"
    full = {field.name: example(field.type) for field in schemas.SETTLEMENT}
    table = pa.Table.from_pylist([full] * 3, schema=schemas.SETTLEMENT)
    store = InMemoryStore()
    write_table(store, path, table)
    whole = store.get(path)
    noticed = 0
    for position in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        store.put(path, bytes(damaged))
        try:
            unnoticed = read_table(store, path)
            span = read_span(store, path, 1, 3, ["status", "due_at"])
        except StoreFileDamaged:
            noticed += 1
        else:
            assert [unnoticed[name] for name in table.column_names] == table.columns
            assert [span[name] for name in ("status", "due_at")] == [table[name][1:] for name in ("status", "due_at")]

    assert noticed > 100


@pytest.mark.parametrize("length", [0, 1, 8, 100, -1, -8])
def test_a_file_cut_short_is_damage(length: int) -> None:
    """What is not a whole Parquet file says so, with its name."""
    store = stored(25)
    store.put("x", store.get("x")[:length])

    with pytest.raises(StoreFileDamaged, match=r"'x' is not the Parquet file.*[^.]\. Restore it from a copy"):
        read_table(store, "x")


@pytest.mark.parametrize(("first", "last"), [(0, 25), (0, 10), (10, 20), (9, 11), (24, 25), (3, 3)])
def test_a_span_of_rows_is_read(first: int, last: int) -> None:
    """read_span gives the rows from one to the other, in whichever groups they lie, with the columns asked for."""
    table = read_span(stored(25), "x", first, last, ["text", "n"])

    assert table.column_names == ["text", "n"]
    assert table["n"].to_pylist() == list(range(first, last))


def test_a_span_behind_the_end_is_damage() -> None:
    """A file with fewer rows than recorded is not the file that was written."""
    with pytest.raises(StoreFileDamaged, match="25 rows; row 25"):
        read_span(stored(25), "x", 20, 26, ["n"])


def test_a_file_is_written_table_by_table() -> None:
    """Small tables share row groups, large ones are cut; nothing is in the store before it is whole."""
    store = InMemoryStore()
    writer = TableWriter(store, "x", 10, SMALL)
    parts = [small(25).slice(first, 3) for first in range(0, 24, 3)] + [small(25).slice(24)]
    for part in [*parts, small(30)]:
        writer.write(part)
    assert not store.exists("x")
    writer.close()

    assert read_table(store, "x").schema == SMALL
    assert read_table(store, "x")["n"].to_pylist() == [*range(25), *range(30)]
    metadata = pq.ParquetFile(store.open("x")).metadata
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert sizes == [10, 10, 10, 10, 10, 5]


def test_dictionaries_come_back_as_text() -> None:
    """A text column may be written as dictionaries that differ from table to table, nulls among them."""
    store = InMemoryStore()
    writer = TableWriter(store, "x", 100, SMALL)
    for texts in (["a", "b", None], ["c"], ["b", "a"], [None]):
        encoded = pa.array(texts, pa.string()).dictionary_encode()
        schema = SMALL.set(1, SMALL.field("text").with_type(encoded.type))
        writer.write(pa.Table.from_arrays([pa.array(range(len(texts)), pa.int64()), encoded], schema=schema))
    writer.close()

    assert read_table(store, "x").schema == SMALL
    assert read_table(store, "x")["text"].to_pylist() == ["a", "b", None, "c", "b", "a", None]


def test_a_writer_checks_every_table() -> None:
    """Another type or name of a column is refused as `write_table` refuses it."""
    writer = TableWriter(InMemoryStore(), "x", 10, SMALL)

    with pytest.raises(ValueError, match="the table has"):
        writer.write(pa.table({"n": [1], "other": ["x"]}))


@pytest.mark.parametrize("by_parts", [False, True])
def test_a_file_names_its_format(by_parts: bool) -> None:
    """Whether it was written at one go or table by table, its metadata says 1."""
    store = stored(3)
    if by_parts:
        writer = TableWriter(store, "x", 2, schema=SMALL)
        writer.write(small(3))
        writer.close()

    assert pq.read_metadata(io.BytesIO(store.get("x"))).metadata[b"eventbridge.format"] == b"1"


def test_a_file_of_a_newer_format_is_refused() -> None:
    """However it is read, with the remedy; it is not taken for a damaged one, which would be rebuilt."""
    store = InMemoryStore()
    store.put("x", of_format("2"))

    for read in (
        lambda: read_table(store, "x"),
        lambda: read_rows(store, "x", "0"),
        lambda: read_span(store, "x", 0, 1, ["n"]),
        lambda: count_rows(store, "x"),
    ):
        with pytest.raises(NewerFormatError, match=r"^x is of format 2, .* formats up to 1\. Install the version"):
            read()


def test_a_file_without_a_format_is_read() -> None:
    """It was written before files named one; what is not a number is damage."""
    store = InMemoryStore()
    store.put("x", of_format(None))
    store.put("y", of_format("new"))

    assert read_table(store, "x").num_rows == 3
    with pytest.raises(StoreFileDamaged, match="names 'new' as its format"):
        read_table(store, "y")


def of_format(name: str | None) -> bytes:
    """Return a Parquet file that names this format."""
    sink = io.BytesIO()
    pq.write_table(small(3).replace_schema_metadata({} if name is None else {"eventbridge.format": name}), sink)
    return sink.getvalue()


#: Four row groups of which one is larger than a part of `parts_of`, and all are larger than `read_rows` reads whole.
LONG = ["x" * (1 << 20) if 20 <= number < 60 else "" for number in range(80)]


def long_rows() -> InMemoryStore:
    """Return a store whose file x has long texts in two of four row groups."""
    store = InMemoryStore()
    table = pa.table({"n": range(80), "text": [f"{number} {text}" for number, text in enumerate(LONG)]}, schema=SMALL)
    write_table(store, "x", table, row_group_rows=20, schema=SMALL)
    return store


@pytest.mark.parametrize("rows", [None, [], [0], [3, 25, 26, 59, 79]])
def test_parts_have_the_chosen_rows_with_their_numbers(rows: list[int] | None) -> None:
    """Each row comes once, in ascending order, and no part has more than a few MB."""
    parts = list(parts_of(long_rows(), "x", ["text"], None if rows is None else np.array(rows, np.int64)))
    numbers = [number for found, _ in parts for number in found.tolist()]
    texts = [text for _, table in parts for text in table["text"].to_pylist()]

    assert numbers == (list(range(80)) if rows is None else rows)
    assert texts == [f"{number} {LONG[number]}" for number in numbers]
    assert max((table.nbytes for _, table in parts), default=0) < 8 << 20


def test_chosen_rows_of_large_row_groups_come_back_equal() -> None:
    """They are read in parts, which the result does not show."""
    rows = [0, 21, 59, 79]

    assert read_rows(long_rows(), "x", rowset.encode(rows))["n"].to_pylist() == rows


def test_a_cancelled_read_ends_at_the_next_part() -> None:
    """A caller who leaves while a file is read does not wait for the end of it."""
    stop = threading.Event()
    cancelled.set(stop)
    try:
        parts = parts_of(long_rows(), "x", ["text"])
        next(parts)
        stop.set()
        with pytest.raises(Cancelled):
            next(parts)
        with pytest.raises(Cancelled):
            read_table(stored(1), "x")
    finally:
        cancelled.set(None)
