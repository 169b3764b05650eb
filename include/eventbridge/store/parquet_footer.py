"""Writes the footer of a Parquet file that contains whole Parquet files, one after another.

Such a file is valid, because a reader finds pages by the offsets in the footer only, and ignores the magic bytes and
footers in between. No page is decoded. Footers are Thrift structs in the compact protocol
(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md); fields that this module does not
know are copied. pyarrow cannot write one: it moves no offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from eventbridge.errors import StoreFileDamaged

MAGIC: Final = b"PAR1"
_TAIL: Final = 8  # the length of the footer, and MAGIC
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12
_INTEGERS: Final = frozenset((_I16, _I32, _I64))
_DEPTH: Final = 32

#: Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData (parquet.thrift).
_SCHEMA, _ROWS, _ROW_GROUPS = 2, 3, 4
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7
_CHUNK_META = 3
#: The deprecated `file_offset` is 0 in files of some writers, and stays so; the others are offsets into the file.
_CHUNK_OFFSETS: Final = (2, 4, 6)
_META_OFFSETS: Final = (9, 10, 11, 14)

#: A struct: by the number of a field, its type and value. A list: the type of its elements, and the elements.
_Struct = dict[int, tuple[int, Any]]


class Footer:
    """The parsed footer of a Parquet file."""

    def __init__(self, fields: _Struct) -> None:
        self._fields = fields

    @classmethod
    def parse(cls, data: bytes | memoryview, path: str) -> Footer:
        """Parse the footer of a whole file. Raises StoreFileDamaged if it is not a Parquet file."""
        if len(data) < len(MAGIC) + _TAIL or bytes(data[:4]) != MAGIC or bytes(data[-4:]) != MAGIC:
            raise _damaged(path, "it does not begin and end with PAR1")
        (length,) = struct.unpack("<I", data[-_TAIL:-4])
        if length > len(data) - len(MAGIC) - _TAIL:
            raise _damaged(path, "its footer is longer than the file")
        try:
            fields = _Reader(bytes(data[len(data) - _TAIL - length : len(data) - _TAIL])).struct(0)
            return cls({**fields, **{each: fields[each] for each in (_SCHEMA, _ROWS, _ROW_GROUPS)}})
        except (IndexError, KeyError, ValueError) as error:
            raise _damaged(path, "its footer cannot be parsed") from error

    @property
    def rows(self) -> int:
        """Return the number of rows of the file."""
        return int(self._fields[_ROWS][1])

    @property
    def schema(self) -> bytes:
        """Return the file's schema, as it is written in the footer."""
        written = bytearray()
        _write_value(written, *self._fields[_SCHEMA])
        return bytes(written)

    def moved_groups(self, offset: int) -> list[bytes]:
        """Return the row groups of this file, as they are written for a file in which this one begins at `offset`."""
        return [_bytes_of(_moved(group, offset)) for group in self._fields[_ROW_GROUPS][1][1]]

    def with_groups(self, rows: int, groups: Sequence[bytes]) -> bytes:
        """Return a footer like this one that has other row groups, and then its length and MAGIC."""
        fields = {**self._fields, _ROWS: (_I64, rows), _ROW_GROUPS: (_LIST, (_STRUCT, groups))}
        written = _bytes_of(fields)
        return written + struct.pack("<I", len(written)) + MAGIC


def _bytes_of(fields: _Struct) -> bytes:
    written = bytearray()
    _write_struct(written, fields)
    return bytes(written)


def _damaged(path: str, why: str) -> StoreFileDamaged:
    return StoreFileDamaged(f"{path!r} is not a Parquet file: {why}. Restore it from a copy of the store.")


def _moved(group: _Struct, offset: int) -> _Struct:
    columns = []
    for chunk in group[_COLUMNS][1][1]:
        meta = chunk[_CHUNK_META][1]
        moved_meta = _shifted(meta, _META_OFFSETS, offset)
        columns.append(_shifted(chunk, _CHUNK_OFFSETS, offset) | {_CHUNK_META: (_STRUCT, moved_meta)})
    moved = _shifted(group, (_GROUP_OFFSET,), offset) | {_COLUMNS: (_LIST, (_STRUCT, columns))}
    if _ORDINAL in moved:
        del moved[_ORDINAL]  # 16 bits; it is optional, and a file may have more row groups
    return moved


def _shifted(fields: _Struct, numbers: Sequence[int], offset: int) -> _Struct:
    """Return the struct with those of the numbered fields that it has, and that are not 0, moved by an offset."""
    moved = {each: (_I64, fields[each][1] + offset) for each in numbers if each in fields and fields[each][1]}
    return {**fields, **moved}


class _Reader:
    """Reads values of the compact protocol from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int) -> _Struct:
        """Return the fields of a struct, in the order in which they are written."""
        if depth > _DEPTH:
            raise ValueError("these bytes are nested deeper than a footer of Parquet")
        fields: _Struct = {}
        number = 0
        while head := self._byte():
            kind = head & 0x0F
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = (kind, self._value(kind, depth))
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._zigzag()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _BYTE:
            return self._take(1)
        if kind == _DOUBLE:
            return self._take(8)
        raise ValueError(f"a footer of Parquet has no value of type {kind}")

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        head = self._byte()
        kind, count = head & 0x0F, head >> 4
        count = self._varint() if count == 15 else count
        if kind in (_TRUE, _FALSE):
            return kind, [self._byte() for _ in range(count)]
        return kind, [self._value(kind, depth) for _ in range(count)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise IndexError
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)


def _write_struct(out: bytearray, fields: _Struct) -> None:
    last = 0
    for number, (kind, value) in fields.items():
        written = (_TRUE if value else _FALSE) if kind in (_TRUE, _FALSE) else kind
        if 0 < number - last < 16:
            out.append((number - last) << 4 | written)
        else:
            out.append(written)
            _write_zigzag(out, number)
        last = number
        if kind not in (_TRUE, _FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_zigzag(out, value)
    elif kind == _BINARY:
        _write_varint(out, len(value))
        out += value
    elif isinstance(value, bytes):  # a byte, a double, or a struct that is written already
        out += value
    elif kind == _STRUCT:
        _write_struct(out, value)
    else:
        _write_list(out, *value)


def _write_list(out: bytearray, kind: int, values: Sequence[Any]) -> None:
    if len(values) < 15:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        _write_varint(out, len(values))
    if kind in (_TRUE, _FALSE):
        out += bytes(values)
        return
    for value in values:
        _write_value(out, kind, value)


def _write_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_zigzag(out: bytearray, number: int) -> None:
    _write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
