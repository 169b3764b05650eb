"""The tables on the page of `eventbridge sql`, generated from their definitions.

`PYTHONPATH=tests python -m docs.sql_tables` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eventbridge.views.sql_tables import SQL_TABLES, SqlTable

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"


def page() -> str:
    """Return the text of the page: what is written by hand, up to the first table, and the tables."""
    head, _, _ = PAGE.read_text().partition("\n## `")
    return head + "".join(line for table in SQL_TABLES.values() for line in _table(table))


def _table(table: SqlTable) -> Iterator[str]:
    yield f"\n## `{table.name}`\n\n{table.about}.\n\n| column | type | meaning |\n|---|---|---|\n"
    for column in table.columns:
        yield f"| `{column.name}` | `{column.type}` | {column.about} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
