from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from eventbridge.errors import LedgerLostError, StoreError, StoreFileMissing
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.file import FileStore

Settle = Callable[[Runtime, str], None]


def committed(site: Any, order: Callable[..., bytes], settle_by_ledger: Settle, number: int) -> str:
    """Publish an event, settle it in a batch and write the batch's manifest, as commit does."""
    runtime: Runtime = site.runtime
    site.publish(order(number))
    batch_id = listen(runtime, "orders") or ""
    settle_by_ledger(runtime, batch_id)
    runtime.store.create(layout.manifest(runtime.ledger.batches.get(batch_id).planned_at, batch_id), b"{}")
    return batch_id


def lose_ledger(site: Any) -> None:
    site.close()
    for file in site.folder.glob("ledger.sqlite*"):
        file.unlink()


def test_an_empty_ledger_is_no_first_start(site: Any, order: Callable[..., bytes], settle_by_ledger: Settle) -> None:
    """A deleted ledger stops the runner with an error that names the ledger with the runner's state."""
    committed(site, order, settle_by_ledger, 1)
    lost = site.runtime.ledger.id
    lose_ledger(site)

    with pytest.raises(LedgerLostError, match=rf"'orders' is in the ledger {lost}.*EVENTBRIDGE_LEDGER_URL"):
        listen(site.runtime, "orders")
    assert site.runtime.ledger.offsets.committed("orders") == {}


def test_an_empty_ledger_stops_new_runners_too(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Settle
) -> None:
    """If the store has a history, a ledger without one registers no runner under any name."""
    batch_id = committed(site, order, settle_by_ledger, 1)
    lose_ledger(site)
    site.write_rules(
        "buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2}}}\n"
        "rules: {all: {bus: orders, runner: other, pattern: {}, targets: {f: {type: file, path: /tmp/f}}}}\n"
    )

    with pytest.raises(LedgerLostError, match=rf"manifest of batch {batch_id}"):
        listen(site.runtime, "other")
    assert site.runtime.ledger.offsets.committed("other") == {}


def restore(site: Any) -> None:
    lose_ledger(site)
    shutil.move(site.folder / "copy", site.folder / "ledger.sqlite")


def keep_copy(site: Any) -> None:
    site.close()
    shutil.copy(site.folder / "ledger.sqlite", site.folder / "copy")


@pytest.mark.parametrize("days", [0, 1, 3, 90])
def test_an_older_copy_of_the_ledger_stops_the_runner(
    site: Any, clock: Any, order: Callable[..., bytes], settle_by_ledger: Settle, days: int
) -> None:
    """A ledger restored from before the last batches plans nothing, however long it was away."""
    committed(site, order, settle_by_ledger, 1)
    keep_copy(site)
    clock.advance(60)
    newest = committed(site, order, settle_by_ledger, 2)
    clock.advance(timedelta(days=days, minutes=10).total_seconds())
    restore(site)

    with pytest.raises(LedgerLostError, match=rf"manifest of batch {newest}"):
        listen(site.runtime, "orders")
    assert len(site.runtime.ledger.batches.find()) == 1


def test_an_older_copy_with_an_unfinished_batch_stops_too(
    site: Any, clock: Any, order: Callable[..., bytes], settle_by_ledger: Settle
) -> None:
    """A batch that only the older copy of the ledger calls unfinished is not redelivered."""
    site.publish(order(1))
    unfinished = listen(site.runtime, "orders") or ""
    keep_copy(site)
    settle_by_ledger(site.runtime, unfinished)
    newest = committed(site, order, settle_by_ledger, 2)
    clock.advance(600)
    restore(site)

    with pytest.raises(LedgerLostError, match=rf"manifest of batch {newest}"):
        listen(site.runtime, "orders")


def test_the_right_ledger_continues(
    site: Any, clock: Any, order: Callable[..., bytes], settle_by_ledger: Settle
) -> None:
    """Manifests of batches that the ledger has do not stop a runner, however old they are."""
    committed(site, order, settle_by_ledger, 1)
    clock.advance(timedelta(days=100).total_seconds())
    committed(site, order, settle_by_ledger, 2)
    site.publish(order(3))

    assert listen(site.runtime, "orders") is not None


def test_a_runner_file_that_says_nothing_stops_the_runner(site: Any) -> None:
    """A damaged runner file is an error that names the file."""
    site.runtime.store.put(layout.runner("orders"), b"not json")

    with pytest.raises(StoreError, match=r"runners/orders\.json"):
        listen(site.runtime, "orders")


def test_the_runner_file_names_the_ledger(site: Any) -> None:
    """Registration records which ledger has the runner's state."""
    listen(site.runtime, "orders")

    written = json.loads(site.runtime.store.get("runners/orders.json"))
    assert (written["runner"], written["ledger"]) == ("orders", site.runtime.ledger.id)


def test_a_store_that_was_deleted_stops_the_runner(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Settle
) -> None:
    """If the ledger has a runner and the store does not, they do not belong together, and the runner stops."""
    committed(site, order, settle_by_ledger, 1)
    site.close()
    shutil.rmtree(site.folder / "store")
    site.publish(order(2))

    with pytest.raises(LedgerLostError, match="the store was deleted or replaced"):
        listen(site.runtime, "orders")


class InterruptedStore(FileStore):
    """A file store that calls `meanwhile` once, after it found no file and before it returns."""

    meanwhile: Callable[[], None] | None = None

    def get(self, path: str) -> bytes:
        try:
            return super().get(path)
        except StoreFileMissing:
            if self.meanwhile is not None:
                call, self.meanwhile = self.meanwhile, None
                call()
            raise


def test_two_processes_that_start_a_runner_together_plan_one_batch(site: Any, order: Callable[..., bytes]) -> None:
    """The second process finds the claim of the first; it does not report a lost store."""
    site.publish(order(1))
    planned: list[str | None] = []
    store = InterruptedStore(site.folder / "store")
    store.meanwhile = lambda: planned.append(listen(site.reopen(), "orders"))

    late = listen(replace(site.runtime, store=store), "orders")

    assert planned == [late] != [None]
