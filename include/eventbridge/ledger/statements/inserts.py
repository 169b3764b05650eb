"""Inserts of a row that must be new, that may exist, that adds to an existing row, or that replaces it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Insert, Select, Table
from sqlalchemy.dialects import postgresql


def insert(table: Table) -> Insert:
    """Return the statement that adds rows, each of which must be new."""
    return Insert(table).inline()


def insert_or_skip(table: Table) -> Insert:
    """Return the statement that adds only new rows; its row count is their number.

    It uses PostgreSQL's construct, which SQLite's compiler accepts too; the reverse does not work.
    """
    return postgresql.insert(table).on_conflict_do_nothing().inline().execution_options(preserve_rowcount=True)


def insert_or_add(table: Table, sums: Collection[str], rows: Select[Any] | None = None) -> Insert:
    """Return the statement that adds new rows, and adds the numbers of the columns `sums` to existing rows.

    `rows`: the source of the rows, with all columns in order; None: the parameters of the execution.
    """
    made = postgresql.insert(table)
    if rows is not None:
        made = made.from_select(table.columns.keys(), rows)
    added = {name: table.c[name] + made.excluded[name] for name in sums}
    return made.on_conflict_do_update(index_elements=list(table.primary_key), set_=added).inline()


def insert_or_set(table: Table) -> Insert:
    """Return the statement that adds a row, or replaces the columns outside the key of an existing row."""
    made = postgresql.insert(table)
    key = list(table.primary_key)
    given = {column.name: made.excluded[column.name] for column in table.columns if column not in key}
    return made.on_conflict_do_update(index_elements=key, set_=given).inline()
