"""Helps to define tables and statements: column types, constraints, partial indexes, inserts, conditions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, get_args

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from eventbridge.model.file_detail import FileDetail, decode_detail, encode_detail
from eventbridge.model.partition import Partition, Span

#: A number that the database generates and never reuses. SQLite generates numbers only in a plain INTEGER column.
RowId = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """Return an aware time as whole microseconds since 1970 (UTC), exactly. Raises ValueError for a naive one."""
    if at.tzinfo is None:
        raise ValueError(f"the ledger takes aware times only, not {at!r}")
    return (at - _EPOCH) // _MICROSECOND


class UtcTime(TypeDecorator[datetime]):
    """An aware time in UTC, stored as BIGINT microseconds, which are the same and compare exactly in every database."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Return whole microseconds since 1970."""
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Return the aware time."""
        return None if value is None else _EPOCH + value * _MICROSECOND


class JsonText(TypeDecorator[Any]):
    """A JSON value stored as ASCII text, the same in every database; a stored tuple is read as a list."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: object, dialect: Dialect) -> str:
        """Return the JSON text."""
        return json.dumps(value, separators=(",", ":"), allow_nan=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value of the JSON text."""
        return None if value is None else json.loads(value)


def to_spans(values: Iterable[Any]) -> tuple[Span, ...]:
    """Return the spans in the value of a JSON column."""
    return tuple(Span(Partition(*partition), first, last) for partition, first, last in values)


class FileDetailText(TypeDecorator[FileDetail]):
    """The detail that a stage records about a file, stored as JSON text."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: FileDetail, dialect: Dialect) -> str:
        """Return the JSON text."""
        return encode_detail(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> FileDetail:
        """Return the record of the JSON text."""
        return None if value is None else decode_detail(value)


class Message(TypeDecorator[str]):
    """Text from an external source (an exception, a response): at most 4,000 characters that any database accepts.

    A chunk's end must be recorded with any error text, so NUL and lone surrogates are replaced, not refused.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text in a form that any database accepts."""
        if value is None:
            return None
        return value[:4000].replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

#: Options of a table whose long key makes up most of a row; it is stored by that key, without a row number.
BY_KEY: dict[str, Any] = {"sqlite_with_rowid": False}

#: Options of a table whose numbers are never reused, not even after its last row is deleted.
NUMBERED: dict[str, Any] = {"sqlite_autoincrement": True}


def word(name: str) -> sa.ColumnElement[str]:
    """Return a constant as SQL text, because a partial index is not used if the constant is a parameter."""
    return sa.literal_column(f"'{name}'", sa.Text)


def one_of(column: str, names: object) -> sa.CheckConstraint:
    """Return the constraint that a column must have one of the values of a Literal."""
    values = ", ".join(f"'{name}'" for name in get_args(names))
    return sa.CheckConstraint(f"{column} IN ({values})", name=column)


def partial(name: str, condition: sa.ColumnElement[bool], *columns: sa.Column[Any], unique: bool = False) -> sa.Index:
    """Return an index of the rows that meet a condition."""
    return sa.Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


@cache
def insert(table: sa.Table) -> sa.Insert:
    """Return the statement that adds rows, each of which must be new."""
    return sa.Insert(table).inline()


@cache
def insert_or_skip(table: sa.Table) -> sa.Insert:
    """Return the statement that adds only new rows; its row count is their number.

    It uses PostgreSQL's construct, which SQLite's compiler accepts too; the reverse does not work.
    """
    return postgresql.insert(table).on_conflict_do_nothing().inline().execution_options(preserve_rowcount=True)


def insert_or_add(table: sa.Table, sums: Collection[str], rows: sa.Select[Any] | None = None) -> sa.Insert:
    """Return the statement that adds new rows, and adds the numbers of the columns `sums` to existing rows.

    `rows` is the source of the rows, with all columns in order; if it is None, the parameters of the execution are the
    rows.
    """
    made = postgresql.insert(table)
    if rows is not None:
        made = made.from_select(table.columns.keys(), rows)
    added = {name: table.c[name] + made.excluded[name] for name in sums}
    return made.on_conflict_do_update(index_elements=list(table.primary_key), set_=added).inline()


@cache
def insert_or_set(table: sa.Table) -> sa.Insert:
    """Return the statement that adds a row, or replaces the columns outside the key of an existing row."""
    made = postgresql.insert(table)
    key = list(table.primary_key)
    given = {column.name: made.excluded[column.name] for column in table.columns if column not in key}
    return made.on_conflict_do_update(index_elements=key, set_=given).inline()


def partition_condition(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition for the rows of the partition that `of_topic`, `of_broker` and `of_partition` name."""
    return sa.and_(
        table.c.topic_name == sa.bindparam("of_topic"),
        table.c.broker_name == sa.bindparam("of_broker"),
        table.c.partition_id == sa.bindparam("of_partition"),
    )


def naming(partition: Partition) -> dict[str, object]:
    """Return the parameters of `partition_condition` for a partition."""
    return {"of_topic": partition.topic, "of_broker": partition.broker, "of_partition": partition.partition_id}


def to_partition(row: sa.Row[Any]) -> Partition:
    """Return the partition of a row."""
    return Partition(row.topic_name, row.broker_name, row.partition_id)


#: The parameter for the time of the ledger's clock, which the method that runs a statement passes.
NOW = sa.bindparam("now", type_=UtcTime)


def period_condition(column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a time is in the period from `since` (included) to `until` (excluded)."""
    return (column >= sa.bindparam("since", type_=UtcTime)) & (column < sa.bindparam("until", type_=UtcTime))
