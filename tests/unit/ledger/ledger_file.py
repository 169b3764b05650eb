"""A ledger file as the tests see it from outside: its URL and its indexes."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def url(file: Path) -> str:
    """Return the URL of a ledger file."""
    return f"sqlite:///{file}"


def indexes_of(file: Path) -> dict[str, str]:
    """Return the SQL of every index of a database by name."""
    connection = sqlite3.connect(file)
    query = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    found = dict(connection.execute(query).fetchall())
    connection.close()
    return found
