"""A ledger that is copied to a server: the same ledger, every row, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contracts.ledger_samples import (
    Clock,
    a_batch,
    a_file,
    a_pending,
    a_retry_batch,
    after,
    register,
    route,
    settle,
)
from services.postgresql import Postgresql
from sqlalchemy import Engine, event

from eventbridge.errors import LedgerError, UserError
from eventbridge.ledger import Ledger
from eventbridge.ledger.copy import copy_ledger
from eventbridge.policy.breaker import Count, Tally


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the URL of a ledger in a file that has seen something of most kinds."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    ledger = Ledger.open(url, Clock())
    register(ledger)
    settle(ledger)
    ledger.pending.add([a_pending(1), a_pending(2), a_pending(3, hold_reason="pool \u00fcber\u00fcll")])
    assert ledger.pending.take(a_retry_batch(), [], [1, 2])
    ledger.settlement.commit("batch-1", "flights", [], after(9), "000000")
    route(ledger, "batch-2")
    ledger.files.record(a_file("batch-2"), "routed")
    ledger.targets.record_attempts([Tally("late", "crm", {int(after(0).timestamp()): Count(20, 20)})])
    ledger.rules.hold("late", "cafe", "it loops")
    ledger.rules.put_in_force("cafe", {"flights-bus": "flights"}, None, {"late": "1"})
    ledger.overrides.set("late", "", "paused", "yes", "me")
    ledger.targets.lease_tokens("late", "crm", 10.0, 4)
    ledger.close()
    return url


@pytest.fixture
def server_url(postgresql_server: Postgresql) -> Iterator[str]:
    """Yield the URL of an empty ledger on a server."""
    url = postgresql_server.new_database()
    Ledger.migrate(url)
    yield url
    postgresql_server.drop_database(url)


def everything(url: str) -> list[object]:
    """Return what a ledger responds to most of what it can be asked."""
    ledger = Ledger.open(url, Clock())
    batches = ledger.batches.find(limit=None)
    found: list[object] = [ledger.id, batches, ledger.offsets.find(), ledger.pending.find()]
    for batch in batches:
        found += [
            ledger.batches.ranges(batch.batch_id),
            ledger.chunks.list_for_batch(batch.batch_id),
            ledger.files.list_for_batch(batch.batch_id, "buffer"),
        ]
    found += [
        ledger.targets.statuses(),
        ledger.rules.list_on_hold(),
        ledger.rules.get_in_force(),
        ledger.rules.changes(),
    ]
    found += [ledger.overrides.all(), ledger.operational_events.waiting(100), ledger.deferred_matches.waiting()]
    ledger.close()
    return found


def test_a_copy_is_the_same_ledger(file: str, server_url: str) -> None:
    """Id, batches, files, pending rows, offsets, targets, rules: whatever is asked, both response the same."""
    before = everything(file)

    counts = copy_ledger(file, server_url)

    assert everything(server_url) == before == everything(file)
    assert {name: counts[name] for name in ("ledger", "batch", "pending", "consumer_offset")} == {
        "ledger": 1,
        "batch": 3,
        "pending": 3,
        "consumer_offset": 2,
    }
    assert counts["delivery_chunk"] > 0
    assert counts["target_window"] > 0


def test_a_copy_of_a_server_is_of_one_moment(file: str, server_url: str, postgresql_server: Postgresql) -> None:
    """A delivery that another process adds while the copy is made is not in the copy, and does not break it."""
    copy_ledger(file, server_url)
    before = everything(server_url)
    second_url = postgresql_server.new_database()
    Ledger.migrate(second_url)
    other = Ledger.open(server_url, Clock())
    pending: list[str] = []

    def add_pending(*reported: Any) -> None:
        statement: str = reported[2]
        if statement.startswith("SELECT pending.") and statement.endswith("FROM pending") and not pending:
            pending.append("meanwhile")
            other.pending.add([a_pending(9)])

    event.listen(Engine, "after_cursor_execute", add_pending)
    try:
        copy_ledger(server_url, second_url)
    finally:
        event.remove(Engine, "after_cursor_execute", add_pending)
        other.close()

    assert pending == ["meanwhile"]
    assert everything(second_url) == before != everything(server_url)
    postgresql_server.drop_database(second_url)


def test_a_copy_continues_its_numbers(file: str, server_url: str) -> None:
    """A number that a row had is never given again, be the row gone by now."""
    ledger = Ledger.open(file, Clock())
    ledger.pending.add([a_pending(4)])
    assert ledger.pending.find()[-1].pending_id == 4
    with ledger.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM pending WHERE pending_id = 4")
    ledger.close()
    copy_ledger(file, server_url)

    copied = Ledger.open(server_url, Clock())
    copied.pending.add([a_pending(5)])

    assert copied.pending.find()[-1].pending_id == 5
    copied.close()


def test_a_ledger_that_has_rows_is_not_written_over(file: str, server_url: str) -> None:
    """A second copy, or one into a ledger that is in use, is refused, and nothing is changed."""
    other = Ledger.open(server_url, Clock())
    other.batches.plan(a_batch("theirs"), [])
    before = everything(server_url)

    with pytest.raises(UserError, match="is not empty: it has rows in batch"):
        copy_ledger(file, server_url)
    assert everything(server_url) == before
    other.close()


def test_a_ledger_is_not_copied_onto_itself(file: str) -> None:
    """Both URLs name one file."""
    with pytest.raises(UserError, match="name the same ledger"):
        copy_ledger(file, file)


def test_a_copy_needs_a_migrated_ledger(file: str, postgresql_server: Postgresql) -> None:
    """A database without tables is not made into a ledger in passing."""
    url = postgresql_server.new_database()

    with pytest.raises(LedgerError, match="Run `eventbridge ledger migrate`"):
        copy_ledger(file, url)
    postgresql_server.drop_database(url)
