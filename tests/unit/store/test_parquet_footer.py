"""The footer of files within a file makes it a Parquet file of all their rows, and no footer makes it crash."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.errors import StoreFileDamaged
from eventbridge.store.parquet_footer import MAGIC, Footer


def written(table: pa.Table, **options: object) -> bytes:
    """Return a table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def together(files: Sequence[bytes]) -> bytes:
    """Return a file that contains these files."""
    data, groups, rows = bytearray(MAGIC), [], 0
    footers = [Footer.parse(each, "one") for each in files]
    for each, footer in zip(files, footers, strict=True):
        groups += footer.moved_groups(len(data))
        rows += footer.rows
        data += each
    return bytes(data) + footers[0].with_groups(rows, groups)


TABLES = st.lists(
    st.lists(
        st.fixed_dictionaries(
            {
                "n": st.integers(-(2**63), 2**63 - 1),
                "text": st.none() | st.text(max_size=5),
                "flag": st.booleans(),
                "share": st.floats(allow_nan=False),
                "parts": st.lists(st.integers(0, 9), max_size=3),
            }
        ),
        max_size=8,
    ),
    min_size=1,
    max_size=20,
)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("share", pa.float64()),
        ("parts", pa.list_(pa.int64())),
    ]
)


@given(TABLES, st.integers(1, 5), st.booleans())
def test_files_in_a_file_are_one_table(tables: list[list[dict[str, object]]], group_rows: int, index: bool) -> None:
    """Files within a file, of any rows, row groups and page indexes, are read as one table of all rows."""
    parts = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in tables]
    files = [
        written(each, row_group_size=group_rows, write_page_index=index, write_page_checksum=True) for each in parts
    ]

    found = pq.ParquetFile(io.BytesIO(together(files)), page_checksum_verification=True).read()

    assert found.equals(pa.concat_tables(parts))


def test_statistics_of_files_in_a_file_select_row_groups() -> None:
    """A filter finds a row by the statistics of the row groups."""
    files = [written(pa.table({"n": [first, first + 1]})) for first in range(0, 40, 2)]

    found = pq.read_table(io.BytesIO(together(files)), filters=[("n", "=", 17)])

    assert found["n"].to_pylist() == [17]


@given(st.binary(max_size=200), st.integers(0, 120))
def test_bytes_that_are_no_footer_are_refused(data: bytes, length: int) -> None:
    """Random bytes in place of a footer raise the error of a damaged file, and no other."""
    file = MAGIC + data + length.to_bytes(4, "little") + MAGIC
    with pytest.raises(StoreFileDamaged):
        Footer.parse(file, "some/file")


@given(st.data())
def test_a_damaged_footer_is_refused_or_read(data: st.DataObject) -> None:
    """A file with one wrong byte is refused as damaged, or its footer can still be parsed."""
    whole = bytearray(written(pa.table({"n": [1, 2], "text": ["a", None]})))
    at = data.draw(st.integers(4, len(whole) - 9))
    whole[at] = data.draw(st.integers(0, 255))
    try:
        footer = Footer.parse(bytes(whole), "some/file")
    except StoreFileDamaged:
        return
    assert isinstance(footer.rows, int)
