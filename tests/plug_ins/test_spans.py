"""A target of a plug-in that takes spans stores each row once, in one transaction with the name of its span."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed_package import install

from eventbridge.testing.plug_ins import Installation

MODULE = '''
import json
import sqlite3
from typing import Literal

from eventbridge.plugins import Result, TargetFields, TargetType


class RowsFields(TargetFields):
    type: Literal["rows"] = "rows"
    database: str


class Rows:
    """Loses its first response after the commit, as if the process or the connection had died then."""

    loses = 1

    def __init__(self, setup):
        self._database = sqlite3.connect(setup.target.database)
        self._database.execute("CREATE TABLE IF NOT EXISTS rows (span TEXT, id TEXT, number INTEGER)")
        self._database.execute("CREATE TABLE IF NOT EXISTS calls (span TEXT)")

    def send_span(self, span):
        rows = [(span.name, delivery_id, json.loads(payload)["data"]) for delivery_id, payload in span.rows()]
        odd = {delivery_id: Result.reject("an odd number") for _, delivery_id, number in rows if number % 2}
        is_stored = self._database.execute("SELECT 1 FROM rows WHERE span = ?", [span.name]).fetchone()
        with self._database:
            self._database.execute("INSERT INTO calls VALUES (?)", [span.name])
            if not is_stored:
                right = [row for row in rows if row[1] not in odd]
                self._database.executemany("INSERT INTO rows VALUES (?, ?, ?)", right)
        if Rows.loses:
            Rows.loses = 0
            raise ConnectionError("the connection was lost")
        return odd


ROWS = TargetType("rows", RowsFields, Rows, takes="spans")
'''
RULES = """
buses: {{orders: {{source: {{type: embedded, start_at: earliest}}}}}}
rules:
  all:
    bus: orders
    pattern: {{}}
    targets:
      t: {{type: rows, database: {database}, retry: {{policy: custom, max_retries: 5, initial_delay: 100ms}}}}
"""


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """Return an installation whose only rule delivers to the table."""
    install(tmp_path / "site", monkeypatch, "acme_rows", MODULE, {"eventbridge.targets": "rows = acme_rows:ROWS"})
    with Installation(tmp_path, RULES.format(database=tmp_path / "rows.sqlite")) as made:
        yield made


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
def test_rows_are_stored_once_and_some_are_rejected(
    installation: Installation, tmp_path: Path, streaming: bool
) -> None:
    """A span that is sent again has the same name, so that it stores nothing; rejected rows are dead letters."""
    installation.publish("orders", *({"data": number} for number in range(10)))
    installation.deliver("orders", wait_seconds=30, streaming=streaming)

    database = sqlite3.connect(tmp_path / "rows.sqlite")
    calls = [name for (name,) in database.execute("SELECT span FROM calls")]
    assert sorted(number for (number,) in database.execute("SELECT number FROM rows")) == [0, 2, 4, 6, 8]
    assert len(calls) == len(set(calls)) + 1
    letters = installation.dead_letters()
    assert {(each["reason"], each["detail"]) for each in letters} == {("non_retryable", "Rejected: an odd number")}
    assert len(letters) == 5
