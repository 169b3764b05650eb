"""Events of a bus on a real broker of each kind go through all stages and are reconciled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline.broker_shop import deliver, delivered, publish, shop_on
from pipeline.modes import deliver_all
from services.brokers import Broker

from eventbridge.errors import OffsetGapError
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.repair.audit import audit
from eventbridge.runtime.runtime import Runtime
from eventbridge.streaming.open_batch import StreamingBatch

Order = Callable[..., bytes]


@pytest.fixture
def shop(site: Any, broker: Broker, tmp_path: Path) -> Any:
    """The installation of the page's example, its topic made just now, with three partitions."""
    return shop_on(site, broker, tmp_path)


def test_the_pages_example_delivers(shop: Any, order: Order, tmp_path: Path) -> None:
    """Each match is delivered once, the audit finds no error, and the broker has the group's last offsets."""
    publish(shop, *(order(number, 1990 + number) for number in range(6)), order("small"), b"no event")
    deliver(shop)
    publish(shop, order("late", 5000))
    deliver(shop)

    found = audit(shop.runtime)
    with_bus = shop.runtime.open_source(shop.runtime.rule_set().buses["orders"])
    assert delivered(tmp_path) == ["0", "1", "2", "3", "4", "5", "late"]
    assert (found.batches, found.differences) == (2, ())
    assert with_bus.committed("orders") == with_bus.ends()
    with_bus.close()


def test_a_stage_that_dies_reading_is_finished_by_the_next(
    shop: Any, order: Order, dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Wherever listen or buffer stops, the next run reads the same ranges: nothing is lost or repeated."""
    publish(shop, *(order(number) for number in range(7)), b"no event")

    def land(runtime: Runtime) -> None:
        buffer(runtime, listen(runtime, "orders") or "")

    for wreck in dying_everywhere(shop, land, every=3):  # the crash matrix stops every call, on the embedded bus
        land(wreck.reopen())
        (batch,) = wreck.runtime.ledger.batches.find(limit=None)
        landed = [file.detail for file in wreck.runtime.ledger.files.list_for_batch(batch.batch_id, "buffer")]
        assert (sum(each.read for each in landed), sum(each.valid for each in landed)) == (8, 7)
        assert batch.state == "buffered"


@pytest.mark.parametrize(("policy", "taken"), [("earliest", ["3", "4", "5", "new"]), ("latest", ["new"])])
def test_messages_dropped_before_they_were_read_are_a_gap(
    shop: Any, broker: Broker, order: Order, tmp_path: Path, policy: str, taken: list[str]
) -> None:
    """The runner continues as `offset_reset` says, and the reconciliation includes the missing offsets."""
    broker.make_topics("orders")
    rules = (shop.folder / "rules" / "rules.yaml").read_text()
    shop.write_rules(rules.replace("start_at: earliest", "start_at: earliest, offset_reset: fail"))
    publish(shop, order("first", 5000))
    deliver(shop)
    publish(shop, *(order(number, 5000) for number in range(3)))
    drop = broker.dropper("orders")
    publish(shop, *(order(number, 5000) for number in range(3, 6)))
    drop()
    reported = r"dropped offsets 1 to 3 of orders/(broker-a/)?0.*write offset_reset: earliest"
    with pytest.raises(OffsetGapError, match=reported):
        deliver(shop)
    shop.write_rules(rules.replace("start_at: earliest", f"start_at: earliest, offset_reset: {policy}"))
    deliver(shop)
    publish(shop, order("new", 5000))
    deliver(shop)

    found = audit(shop.runtime)
    gap = 3 if policy == "earliest" else 6
    assert delivered(tmp_path) == sorted(["first", *taken])
    assert (found.events["gaps"], found.events["read"], found.differences) == (gap, 8 - gap, ())


@pytest.mark.parametrize("has_open_batch", [False, True], ids=["before its streaming task", "when a batch is open"])
def test_events_after_a_gap_take_a_batch_of_their_own(
    shop: Any, broker: Broker, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_open_batch: bool
) -> None:
    """Later events are sent and reconciled in another batch; events that were passed over are not sent."""
    broker.make_topics("orders")
    rules = (shop.folder / "rules" / "rules.yaml").read_text()
    shop.write_rules(rules.replace("start_at: earliest", "start_at: earliest, offset_reset: latest"))
    publish(shop, order("first", 5000))
    deliver_all(shop.runtime, "orders", "streaming")
    left = [1]

    def drop() -> None:
        left.clear()
        publish(shop, *(order(number, 5000) for number in range(3)))
        dropping = broker.dropper("orders")
        publish(shop, *(order(number, 5000) for number in range(3, 6)))
        dropping()

    class LateBatch(StreamingBatch):
        def run(self) -> bool:
            if left:
                drop()
            return super().run()

    if has_open_batch:
        monkeypatch.setattr("eventbridge.streaming.task.StreamingBatch", LateBatch)
    else:
        drop()
    deliver_all(shop.runtime, "orders", "streaming")
    publish(shop, order("new", 5000))
    deliver_all(shop.runtime, "orders", "streaming")

    found = audit(shop.runtime)
    assert delivered(tmp_path) == ["first", "new"]
    assert (left, found.events["gaps"], found.events["read"], found.differences) == ([], 6, 2, ())


def test_partitions_that_are_added_are_read_from_their_beginning(
    shop: Any, broker: Broker, order: Order, tmp_path: Path
) -> None:
    """New partitions are read from their beginning, even with `start_at: latest`."""
    publish(shop, order("old", 5000))
    deliver(shop)
    broker.add_partitions("orders", 6)
    publish(shop, *(order(number, 5000) for number in range(6)))
    deliver(shop)

    assert delivered(tmp_path) == ["0", "1", "2", "3", "4", "5", "old"]
    assert audit(shop.runtime).differences == ()
