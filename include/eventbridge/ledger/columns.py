"""Column types for values that have no portable SQL type: times, JSON, and text from external sources."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Integer, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from eventbridge.model.file_detail import FileDetail, decode_detail, encode_detail
from eventbridge.model.partition import Partition, Span

#: A number that the database generates and never reuses; SQLite generates one only in a plain INTEGER column.
RowId = BigInteger().with_variant(Integer, "sqlite")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """Return an aware time as whole microseconds since 1970 (UTC), exactly; raises ValueError for a naive one."""
    if at.tzinfo is None:
        raise ValueError(f"the ledger takes aware times only, not {at!r}")
    return (at - _EPOCH) // _MICROSECOND


class UtcTime(TypeDecorator[datetime]):
    """An aware time in UTC, stored as BIGINT microseconds: the same in every database, and compared exactly."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Return whole microseconds since 1970."""
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Return the aware time."""
        return None if value is None else _EPOCH + value * _MICROSECOND


class JsonText(TypeDecorator[Any]):
    """A JSON value stored as ASCII text, the same in every database; tuples are read as lists."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str:
        """Return the JSON text."""
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value of the JSON text."""
        return None if value is None else json.loads(value)


def to_spans(found: Iterable[Any]) -> tuple[Span, ...]:
    """Return the spans that a column of JSON holds."""
    return tuple(Span(Partition(*partition), first, last) for partition, first, last in found)


class FileDetailText(TypeDecorator[FileDetail]):
    """The detail that a stage records about a file, stored as JSON text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: FileDetail, dialect: Dialect) -> str:
        """Return the JSON text."""
        return encode_detail(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> FileDetail:
        """Return the record of the JSON text."""
        return None if value is None else decode_detail(value)


class Message(TypeDecorator[str]):
    """Text from an external source (an exception, a response): at most 4,000 characters that any database accepts.

    A chunk's end must be recorded whatever its error says, so NUL and lone surrogates are replaced, not refused.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text in a form that any database accepts."""
        if value is None:
            return None
        return value[:4000].replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
