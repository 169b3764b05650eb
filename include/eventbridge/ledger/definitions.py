"""Helpers for the definitions of the ledger's tables: constraint names, fixed words, partial indexes."""

from __future__ import annotations

from typing import Any, get_args

from sqlalchemy import CheckConstraint, Column, ColumnElement, Index, MetaData, Text, literal_column

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


#: Options of a table whose long key is most of a row: it is stored by that key, without a row number.
BY_KEY: dict[str, Any] = {"sqlite_with_rowid": False}


def word(name: str) -> ColumnElement[str]:
    """Return a fixed word of the schema as SQL text: a partial index cannot be used with a parameter."""
    return literal_column(f"'{name}'", Text)


def one_of(column: str, names: object) -> CheckConstraint:
    """Return the constraint that a column holds one of the words of a Literal."""
    values = ", ".join(f"'{name}'" for name in get_args(names))
    return CheckConstraint(f"{column} IN ({values})", name=column)


def partial(name: str, condition: ColumnElement[bool], *columns: Column[Any], unique: bool = False) -> Index:
    """Return an index of the rows that meet a condition."""
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
