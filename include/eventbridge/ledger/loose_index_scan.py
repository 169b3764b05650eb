"""Reads one row per kind from an index: a loose index scan, which neither SQLite nor PostgreSQL does on its own.

`SELECT DISTINCT` reads every row. This query enters the index once for each kind: at its first row, then at the first
row after the kind that was found, and so on. The cost grows with the number of kinds, not with their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.util import ClauseAdapter


def one_of_each(kind: Sequence[sa.Column[Any]], condition: sa.ColumnElement[bool]) -> sa.CTE:
    """Return the query for the id of one row of each kind, among rows that meet a condition, and a final null.

    `kind` holds columns of one table, whose primary key is a single column; they are never null in rows that meet the
    condition. The query is cheap only with an index of those rows on the columns of `kind`, in order. Columns that the
    condition fixes to one value may precede them in the index.
    """
    table = kind[0].table
    (row_id,) = table.primary_key
    here = table.alias("here")
    first = sa.select(row_id).where(condition).order_by(*kind).limit(1).scalar_subquery()
    found = sa.select(first.label(row_id.name)).cte("one_of_each", recursive=True)
    # The following row has a greater last column; if there is none, a greater last but one, and so on. Each of these is
    # one search. A row comparison such as (a, b) > (1, 2) would also work, but SQLite enters its index at the first
    # equal row and reads all of these rows.
    following = [_select_next(here, row_id, kind[:length], kind, condition) for length in range(len(kind), 0, -1)]
    next_one = sa.func.coalesce(*following) if len(following) > 1 else following[0]
    return found.union_all(sa.select(next_one).where(here.c[row_id.name] == found.c[row_id.name]))


def on_alias(table: sa.FromClause, condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return a condition on a table as the same condition on an alias of the table."""
    return ClauseAdapter(table).traverse(condition)


def _select_next(
    here: sa.FromClause,
    row_id: sa.Column[Any],
    prefix: Sequence[sa.Column[Any]],
    kind: Sequence[sa.Column[Any]],
    condition: sa.ColumnElement[bool],
) -> sa.ScalarSelect[Any]:
    """Return the query for the first row that equals the current one in `prefix`, but is greater in its last column."""
    behind = row_id.table.alias("behind")
    *same, greater = (column.name for column in prefix)
    return (
        sa.select(behind.c[row_id.name])
        .where(on_alias(behind, condition), *(behind.c[name] == here.c[name] for name in same))
        .where(behind.c[greater] > here.c[greater])
        .order_by(*(behind.c[column.name] for column in kind))
        .limit(1)
        .correlate(here)
        .scalar_subquery()
    )
