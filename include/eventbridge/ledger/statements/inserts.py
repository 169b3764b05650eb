"""The two ways to insert: a row that must be new, and a row that may be there already."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.dml import Insert


class InsertOrIgnore(Insert):
    """INSERT that leaves out each row that a unique constraint or index refuses."""

    inherit_cache = True


@compiles(InsertOrIgnore)
def _insert_or_ignore(insert: InsertOrIgnore, compiler: Any, **options: Any) -> str:
    return f"{compiler.visit_insert(insert, **options)} ON CONFLICT DO NOTHING"


def insert(table: Table) -> Insert:
    """Return the statement that adds rows, each of which must be new."""
    return Insert(table).inline()


def insert_or_skip(table: Table) -> InsertOrIgnore:
    """Return the statement that adds the rows that are new; its row count says how many were."""
    # the number of rows inserted is what callers decide by: it must survive a driver's batching
    return InsertOrIgnore(table).inline().execution_options(preserve_rowcount=True)
