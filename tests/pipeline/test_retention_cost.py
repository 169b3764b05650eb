"""The cost of a retention run depends on what it removes, not on what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from eventbridge import fault_points
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.upkeep.maintain import maintain

Settle = Callable[[Runtime, str], None]


@pytest.fixture
def calls() -> Iterator[Counter[str]]:
    """Count all further calls to the store, the ledger and the bus by fault point."""
    counted: Counter[str] = Counter()
    fault_points.install(lambda point: counted.update([point]))
    yield counted
    fault_points.install(None)


def commit(runtime: Runtime, settle: Settle, at: datetime) -> Batch:
    """Plan a batch at a time and commit it with a manifest, as if no event had matched."""
    batch = Batch(new_batch_id(at), "normal", "orders", "orders", "planned", "cafe", at)
    assert runtime.ledger.batches.plan(batch, [])
    settle(runtime, batch.batch_id)
    runtime.ledger.settlement.mark_bus_committed(batch.batch_id)
    runtime.store.put(layout.manifest(at, batch.batch_id), b"{}")
    return batch


def test_a_run_costs_what_it_removes(
    runtime: Runtime, clock: Any, settle_by_ledger: Settle, calls: Counter[str]
) -> None:
    """With ten times as many kept batches, a run makes the same calls and lists none of them."""
    now = clock()

    def run_with(kept: int, days: range) -> Counter[str]:
        for day in days:
            commit(runtime, settle_by_ledger, now - timedelta(days=day))
        for number in range(kept):
            commit(runtime, settle_by_ledger, now - timedelta(hours=1, seconds=number))
        calls.clear()
        assert maintain(runtime).batches["all"] == len(days)
        return Counter(calls)

    run_with(1, range(31, 50))  # the store's days are cleaned once
    few = run_with(9, range(31, 33))
    many = run_with(90, range(31, 33))

    assert many == few
    assert few["store.list"] <= 3, "the newest manifest, the files of the index, and the lists of compacted files"
