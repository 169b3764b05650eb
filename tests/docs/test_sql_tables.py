"""docs/reference/sql.md says what the tables of `eventbridge sql` have, and DuckDB agrees."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from docs.sql_tables import PAGE, page

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.store import sql_messages
from eventbridge.views.sql import MAX_BYTES, run_sql
from eventbridge.views.sql_tables import SQL_TABLES, SqlTable

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_page_is_up_to_date() -> None:
    """Its tables are generated from the definitions, and its limits are those of the code."""
    text = PAGE.read_text()

    assert text == page(), "run: PYTHONPATH=tests python -m docs.sql_tables"
    assert f"| {MAX_BYTES >> 20:,} MB |" in text
    assert f"| {sql_messages.LARGE.tables.replace('GB', ' GB')} |" in text
    assert f"| {sql_messages.SECONDS:g} s |" in text


@pytest.mark.parametrize("table", SQL_TABLES.values(), ids=lambda table: str(table.name))
def test_each_column_has_the_type_on_the_page(table: SqlTable, tmp_path: Path) -> None:
    """DuckDB describes the table with the same columns and types."""
    home = {"EVENTBRIDGE_HOME": str(tmp_path)}
    runtime = open_runtime(Settings.from_mapping(home), connections_from_environment({}))
    found = run_sql(runtime, f"DESCRIBE {table.name}", AT, AT, 100)
    runtime.close()

    assert [tuple(row[:2]) for row in found.rows] == [(each.name, each.type) for each in table.columns]
