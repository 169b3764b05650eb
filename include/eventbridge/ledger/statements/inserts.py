"""The two ways to insert: a row that must be new, and a row that may be there already."""

from __future__ import annotations

from sqlalchemy import Insert, Table
from sqlalchemy.dialects import postgresql


def insert(table: Table) -> Insert:
    """Return the statement that adds rows, each of which must be new."""
    return Insert(table).inline()


def insert_or_skip(table: Table) -> Insert:
    """Return the statement that adds the rows that are new; its row count says how many were.

    PostgreSQL's construct, as SQLite's compiler takes it too but not the other way round.
    """
    return postgresql.insert(table).on_conflict_do_nothing().inline().execution_options(preserve_rowcount=True)
