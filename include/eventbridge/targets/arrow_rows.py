"""Converts payloads to the rows of an Arrow table, whose columns are the members of the payloads.

A payload that does not fit the columns is rejected alone. Each payload is decoded once, straight into the types of the
columns; only payloads that this rejects are looked at member by member.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from eventbridge.targets.lines import views_of
from eventbridge.targets.table_fields import decimal_of

#: The names of columns that are added, because they come from events; the others are those of Delta and Iceberg for
#: metadata, and hide it from readers, or cannot be read.
_NEW_NAME: Final = re.compile(
    r"(?!_(?:file|pos|deleted|spec_id|partition|row_id|last_updated_sequence_number|change_type|change_ordinal"
    r"|commit_version|commit_timestamp|commit_snapshot_id|metadata)$)[a-z_][a-z0-9_]{0,62}",
    re.ASCII | re.IGNORECASE,
)
#: The maximum number of columns of a table to which columns are added.
MAX_COLUMNS: Final = 200
#: The number of payloads that are decoded at a time.
_SLICE: Final = 8_192
_NULL: Final = b"null"
_TYPES_OF_VALUES: Final = (bytes, date, datetime, time, Decimal)


@dataclass
class ConvertedRows:
    """The rows of the payloads that fit, in their order, and why the others do not, by the number of the payload.

    `added` are the columns at the end of `table` that the table at the target does not have yet.
    """

    table: pa.Table
    rejected: dict[int, str]
    added: list[pa.Field] = field(default_factory=list)

    def without(self, unfit: Mapping[int, str]) -> ConvertedRows:
        """Return the rows without some, by their numbers in `table`, which are rejected as well."""
        if not unfit:
            return self
        payloads = [number for number in range(self.table.num_rows + len(self.rejected)) if number not in self.rejected]
        rejected = self.rejected | {payloads[number]: why for number, why in unfit.items()}
        kept = [number for number in range(self.table.num_rows) if number not in unfit]
        return ConvertedRows(self.table.take(pa.array(kept, pa.int64())), rejected, self.added)


@dataclass(frozen=True)
class RowConverter:
    """Converts payloads for a table with a schema.

    `name` is the name of the table in messages. The column `delivery_id`, if the table has it, gets the ids of the
    deliveries. `new_columns` is what happens to members without a column: `refuse`, `ignore` or `add`. A column of
    strings takes any value, and holds the JSON text of those that are no strings.
    """

    schema: pa.Schema
    name: str
    delivery_id: str = "delivery_id"
    new_columns: str = "refuse"

    def convert(self, delivery_ids: pa.Array, payloads: pa.Array) -> ConvertedRows:
        """Return the rows of payloads, an Arrow array of binaries, whose deliveries have these ids of 16 bytes.

        A slice is decoded at a time, because decoded rows take several times the memory of their columns.
        """
        rejected: dict[int, str] = {}
        misfits: dict[int, bytes] = {}
        decode = self._decoder(self.schema)
        tables: list[pa.Table] = []
        numbers: list[int] = []
        for start in range(0, len(payloads), _SLICE):
            decoded = _decode_all(decode, payloads.slice(start, _SLICE), start, misfits)
            tables.append(self._table(self.schema, decoded, delivery_ids, rejected))
            numbers += decoded
        added: list[pa.Field] = []
        if misfits:
            members = _members_of(misfits, rejected)
            if self.new_columns == "add":
                added = self._added(members)
            schema = pa.schema([*self.schema, *added])
            decoded = self._decode_leniently(schema, misfits, members, rejected)
            tables.append(self._table(schema, decoded, delivery_ids, rejected))
            numbers += decoded
        if not tables:
            return ConvertedRows(self.schema.empty_table(), rejected)
        table = pa.concat_tables(tables, promote_options="default" if added else "none")
        if misfits and len(misfits) > len(rejected):  # rows at the end that belong between the others
            table = table.take(pa.array(np.argsort(numbers)))
        return ConvertedRows(table, rejected, added)

    @property
    def problem_of_ids(self) -> str | None:
        """Why the table cannot hold the ids of deliveries, or None if it can or has no column for them."""
        name = self.delivery_id
        if name not in self.schema.names or is_text(kind := self.schema.field(name).type):
            return None
        return (
            f"the column {name!r} of the table {self.name!r} has the type {kind}, but gets the delivery's id, a text. "
            "Name another column in delivery_id"
        )

    def _decoder(self, schema: pa.Schema, *, any_as_text: bool = False) -> Callable[[bytes | memoryview], Any]:
        """Return a decoder to objects whose attributes `c0`, `c1`, ... are the values of the columns."""
        strict = self.new_columns != "ignore"
        kinds: list[Any] = []
        for column in schema:
            if column.name == self.delivery_id:
                kinds.append(Any)
            elif any_as_text and is_text(column.type):
                kinds.append(msgspec.Raw)
            else:
                kinds.append(_python_type(column.type, strict))
        return msgspec.json.Decoder(_structure(schema, kinds, strict)).decode

    def _is_payload_text(self, column: pa.Field) -> bool:
        return column.name != self.delivery_id and is_text(column.type)

    def _added(self, members: Mapping[int, Mapping[str, bytes]]) -> list[pa.Field]:
        """Return the columns that the table lacks; a null needs none."""
        known = {name.lower() for name in self.schema.names}
        values: dict[str, list[bytes]] = {}
        spellings: dict[str, str] = {}
        for row in members.values():
            for name, value in row.items():
                if value == _NULL or name.lower() in known or not _NEW_NAME.fullmatch(name):
                    continue
                if spellings.setdefault(name.lower(), name) == name:
                    values.setdefault(name, []).append(value)
        room = max(0, MAX_COLUMNS - len(self.schema.names))
        return [pa.field(name, infer_type(found)) for name, found in list(values.items())[:room]]

    def _decode_leniently(
        self,
        schema: pa.Schema,
        bodies: Mapping[int, bytes],
        members: Mapping[int, Mapping[str, bytes]],
        rejected: dict[int, str],
    ) -> dict[int, Any]:
        """Decode the payloads of `members` once more, with any value in columns of strings; reject the others."""
        decode, decoded = self._decoder(schema, any_as_text=True), {}
        texts = [f"c{number}" for number, each in enumerate(schema) if self._is_payload_text(each)]
        names = frozenset(schema.names)
        for number, row in members.items():
            known = row
            if self.new_columns == "add":
                known = {name: value for name, value in row.items() if name in names or value != _NULL}
            problem = self._problem_of_names(names, known)
            if problem is None:
                body = bodies[number] if len(known) == len(row) else _document(known)
                try:
                    found = decode(body)
                    for attribute in texts:
                        setattr(found, attribute, _text_of(getattr(found, attribute)))
                except (msgspec.DecodeError, RecursionError) as error:  # of which a ValidationError is one
                    problem = _misfit(str(error))
                else:
                    decoded[number] = found
            if problem is not None:
                rejected[number] = problem
        return decoded

    def _problem_of_names(self, names: Collection[str], row: Mapping[str, bytes]) -> str | None:
        unknown = next((name for name in row if name not in names), None)
        if unknown is None or self.new_columns == "ignore":
            return None
        shown = repr(unknown[:80])
        if self.new_columns == "refuse":
            return (
                f"the table {self.name!r} has no column {shown}. Add it, let the transform leave it out, or write "
                "new_columns: ignore or add"
            )
        if not _NEW_NAME.fullmatch(unknown):
            return f"{shown} cannot be the name of a column. Write letters, digits and _ only, and none of metadata"
        if (like := next((name for name in names if name.lower() == unknown.lower()), None)) is not None:
            return f"{shown} differs from the column {like!r} only in case. Write it in the same way"
        return (
            f"the table {self.name!r} would get more than {MAX_COLUMNS} columns. Let the transform of the target leave "
            "members out, or write new_columns: refuse or ignore"
        )

    def _table(
        self, schema: pa.Schema, decoded: dict[int, Any], delivery_ids: pa.Array, rejected: dict[int, str]
    ) -> pa.Table:
        """Return the table of decoded rows by number; reject, and remove, those that Arrow's types cannot hold."""
        while True:
            columns: list[pa.Array] = []
            misfits: dict[int, str] = {}
            for position, column in enumerate(schema):
                if column.name == self.delivery_id:
                    columns.append(_texts_of_ids(_take_ids(delivery_ids, decoded)).cast(column.type))
                else:
                    values = list(map(attrgetter(f"c{position}"), decoded.values()))
                    columns.append(_column(column, values, decoded, misfits))
            if not misfits:
                return pa.table(columns, schema=schema)
            rejected |= misfits
            for number in misfits:
                del decoded[number]


def _take_ids(ids: pa.Array, numbers: Collection[int]) -> pa.Array:
    """Return the ids with these numbers; usually they are adjacent."""
    first = next(iter(numbers), 0)
    if all(number == place for place, number in enumerate(numbers, first)):
        return ids.slice(first, len(numbers))
    return ids.take(pa.array(list(numbers), pa.int64()))


_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_LENGTH: Final = 36
#: The places of the 32 digits in the text of an id.
_PLACES: Final = np.array([place for place in range(_LENGTH) if place not in (8, 13, 18, 23)])


def _texts_of_ids(ids: pa.Array) -> pa.Array:
    """Return the texts of ids of 16 bytes, as `delivery_id_text` writes each; for many of them ten times as fast."""
    raw = np.frombuffer(b"".join(ids.to_pylist()), np.uint8).reshape(-1, 16)
    texts = np.full((len(ids), _LENGTH), ord("-"), np.uint8)
    texts[:, _PLACES[::2]] = _DIGITS[raw >> 4]
    texts[:, _PLACES[1::2]] = _DIGITS[raw & 15]
    ends = np.arange(len(ids) + 1, dtype=np.int32) * np.int32(_LENGTH)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(texts))


def arrow_type(word: str) -> pa.DataType:
    """Return the type of a column for its word in rule files, see `table_fields`."""
    if (digits := decimal_of(word)) is not None:
        return pa.decimal128(*digits)
    return _TYPES_OF_WORDS[word]


_TYPES_OF_WORDS: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}


def infer_type(values: Iterable[bytes]) -> pa.DataType:
    """Return the type of a new column for JSON texts: `bool`, `int64`, `double`, or else `string`."""
    kinds = {_kind_of(value) for value in values}
    if kinds == {"number", "whole number"}:
        return pa.float64()
    inferred = {"boolean": pa.bool_(), "whole number": pa.int64(), "number": pa.float64()}
    return inferred.get(kinds.pop(), pa.string()) if len(kinds) == 1 else pa.string()


def _kind_of(value: bytes) -> str:
    first = value[:1]
    if first in (b"t", b"f"):
        return "boolean"
    if first not in b"-0123456789":
        return "text"
    if any(char in value for char in b".eE"):
        return "number"
    return "whole number" if -(2**63) <= int(value[:21]) < 2**63 and len(value) <= 20 else "text"


def _members_of(bodies: Mapping[int, bytes], rejected: dict[int, str]) -> dict[int, dict[str, bytes]]:
    """Return the JSON text of each member of payloads, by their numbers; reject those that are no object."""
    found = {}
    for number, body in bodies.items():
        try:
            body.decode()
            found[number] = {name: bytes(value).strip() for name, value in _MEMBERS.decode(body).items()}
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            rejected[number] = _NO_OBJECT
    return found


_NO_OBJECT: Final = "a row is a JSON object, but the payload is not. Let the transform of the target produce one"
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


def _document(members: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in members.items()) + b"}"


def _text_of(value: Any) -> str | None:
    text = b"" if value is None else bytes(value).strip()
    if not text or text == _NULL:
        return None
    return _TEXT.decode(text) if text[:1] == b'"' else text.decode()


def _misfit(why: str) -> str:
    return f"the payload does not fit the columns of the table: {why}"


def _decode_all(
    decode: Callable[[memoryview], Any], payloads: pa.Array, first: int, misfits: dict[int, bytes]
) -> dict[int, Any]:
    """Return the decoded payloads by their numbers, of which `first` is the first one; keep what does not decode."""
    decoded = {}
    for number, payload in enumerate(views_of(payloads), first):
        try:
            decoded[number] = decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            misfits[number] = bytes(payload)
    return decoded


def _column(column: pa.Field, values: list[Any], numbers: Collection[int], rejected: dict[int, str]) -> pa.Array:
    """Return the values of a column, or reject the rows whose values it cannot hold."""
    if _is_nested(column.type):
        values = [msgspec.to_builtins(value, builtin_types=_TYPES_OF_VALUES) for value in values]
    elif pa.types.is_timestamp(column.type) and column.type.tz is None:
        values = [value if value is None else _in_utc(value) for value in values]
    if not column.nullable:
        for number, value in zip(numbers, values, strict=True):
            if value is None:
                rejected[number] = f"the payload has no value for {column.name!r}, whose column takes no null"
    try:
        return _array(values, column.type)
    except _CANNOT_HOLD:
        for number, value in zip(numbers, values, strict=True):
            if not _holds(column.type, value):
                rejected[number] = _misfit(f"`{column.type}` cannot hold the value - at `$.{column.name}`")
        return pa.nulls(len(values), column.type)


_CANNOT_HOLD: Final = (pa.ArrowInvalid, ArithmeticError, ValueError, TypeError)


def _holds(kind: pa.DataType, value: Any) -> bool:
    try:
        _array([value], kind)
    except _CANNOT_HOLD:
        return False
    return True


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if "decimal" in str(kind):
        values = [_exact(value, kind) for value in values]
    return pa.array(values, kind)


def _exact(value: Any, kind: pa.DataType) -> Any:
    """Return a value with its decimals at the scale of their types; raises ArithmeticError if one has more digits.

    pyarrow must get no others: it ends the process with a segmentation fault at 1e-400000000.
    """
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
        return value.quantize(Decimal(1).scaleb(-kind.scale), context=context)
    if pa.types.is_struct(kind):
        return {each.name: _exact(value[each.name], each.type) for each in kind.fields}
    if pa.types.is_map(kind):
        return {key: _exact(item, kind.item_type) for key, item in value.items()}
    return [_exact(item, kind.value_type) for item in value] if _is_list(kind) else value


def _in_utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _python_type(kind: pa.DataType, strict: bool) -> Any:
    """Return the type into which values of a column are decoded; that of null if the column takes no JSON value."""
    for is_of, python_type in _SIMPLE_TYPES:
        if is_of(kind):
            return python_type
    if pa.types.is_integer(kind):
        low = -(1 << kind.bit_width - 1) if pa.types.is_signed_integer(kind) else 0
        return Annotated[int, msgspec.Meta(ge=low, le=low + (1 << kind.bit_width) - 1)]
    if pa.types.is_timestamp(kind):
        return datetime if kind.tz is None else Annotated[datetime, msgspec.Meta(tz=True)]
    if pa.types.is_struct(kind):
        kinds = [_python_type(each.type, strict) for each in kind.fields]
        return _structure(kind.fields, kinds, strict, required=[not each.nullable for each in kind.fields])
    if pa.types.is_map(kind) and is_text(kind.key_type):
        return dict[str, _element(kind.item_field, strict)]  # type: ignore[misc]
    return list[_element(kind.value_field, strict)] if _is_list(kind) else type(None)  # type: ignore[misc]


def _element(of: pa.Field, strict: bool) -> Any:
    kind = _python_type(of.type, strict)
    return kind | None if of.nullable else kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_nested(kind: pa.DataType) -> bool:
    return bool(_is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind))


_LARGEST_FLOAT32: Final = 3.4028234663852886e38
_SIMPLE_TYPES: Final[Sequence[tuple[Callable[[pa.DataType], bool], Any]]] = (
    (is_text, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_float64, float),
    (pa.types.is_float32, Annotated[float, msgspec.Meta(ge=-_LARGEST_FLOAT32, le=_LARGEST_FLOAT32)]),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_date, date),
    (pa.types.is_time, time),
    (_is_binary, bytes),
)


def _structure(columns: Iterable[pa.Field], kinds: Sequence[Any], strict: bool, required: Sequence[bool] = ()) -> Any:
    names = {f"c{number}": each.name for number, each in enumerate(columns)}
    fields: list[Any] = []
    for attribute, kind, is_required in zip(names, kinds, required or [False] * len(kinds), strict=True):
        optional = kind if kind is msgspec.Raw or kind is Any else kind | None
        fields.append((attribute, kind) if is_required else (attribute, optional, None))
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=strict, gc=False, kw_only=True)
