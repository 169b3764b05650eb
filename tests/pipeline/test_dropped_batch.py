"""A broker drops messages that an open batch in streaming mode has sent, before its reconciliation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline.broker_shop import delivered, publish, shop_on
from pipeline.conftest import Killed
from pipeline.delivering import RunningClock
from pipeline.modes import deliver_all
from services.brokers import Broker, OnKafka
from services.kafka import Kafka

from eventbridge import fault_points
from eventbridge.errors import StoreError
from eventbridge.repair.audit import audit
from eventbridge.streaming import task as streaming
from eventbridge.streaming.open_batch import StreamingBatch

Order = Callable[..., bytes]


@pytest.fixture
def clock() -> RunningClock:
    """The machine's clock: probes of a target wait by it."""
    return RunningClock()


@pytest.fixture
def shop(site: Any, broker: Broker, tmp_path: Path) -> Any:
    """The installation of `away_on`."""
    return away_on(site, broker, tmp_path)


def away_on(site: Any, broker: Broker, folder: Path) -> Any:
    """Return the installation of the page's example with a second target, whose folder cannot be made."""
    shop = shop_on(site, broker, folder)
    rules = (shop.folder / "rules" / "rules.yaml").read_text()
    retry = "{policy: custom, max_retries: 3, initial_delay: 1h, max_delay: 1h}"
    shop.write_rules(f"{rules}      away: {{type: file, path: {folder}/away/big.jsonl, retry: {retry}}}\n")
    (folder / "away").write_text("no folder")
    broker.make_topics("orders")
    return shop


def offset_reset(shop: Any, policy: str) -> None:
    """Set where a runner continues if its next messages were dropped."""
    rules = (shop.folder / "rules" / "rules.yaml").read_text()
    shop.write_rules(rules.replace("start_at: earliest", f"start_at: earliest, offset_reset: {policy}"))


def after_the_first_batch(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Do something once the first batch has recorded all its responses, and its reconciliation is to be done."""
    ended: list[StreamingBatch] = []

    class EndedBatch(StreamingBatch):
        def end(self) -> bool:
            kept = super().end()
            if self.events:
                ended.append(self)
            if ended == [self]:
                then()
            return kept

    monkeypatch.setattr(streaming, "StreamingBatch", EndedBatch)


def retry(shop: Any) -> None:
    """Deliver what is pending, and what has come: a target that failed is probed first."""
    for _ in range(3):
        shop.clock.advance(3601)
        deliver_all(shop.runtime, "orders", "batch")


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_messages_taken_by_a_batch_are_in_its_reconciliation(
    shop: Any, broker: Broker, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Refused deliveries are retried, and none is a gap: messages are kept in memory until they are landed."""
    shop.reopen(buffer_range_events=2)
    offset_reset(shop, policy)

    def drop() -> None:
        dropping = broker.dropper("orders")
        publish(shop, order("late", 5000))
        dropping()

    after_the_first_batch(monkeypatch, drop)
    publish(shop, order("first", 5000), order("first", 5000), b"no event", order("small"), order("second", 5000))
    deliver_all(shop.runtime, "orders", "streaming")
    (tmp_path / "away").unlink()
    retry(shop)

    found = audit(shop.runtime)
    assert delivered(tmp_path) == delivered(tmp_path / "away") == ["first", "late", "second"]
    assert found.differences == ()
    assert {name: found.events[name] for name in ("gaps", "read", "valid", "duplicate", "malformed")} == {
        "gaps": 0,
        "read": 6,
        "valid": 4,
        "duplicate": 1,
        "malformed": 1,
    }


def test_a_reconciliation_that_failed_is_done_from_memory_as_well(
    site: Any, kafka: Kafka, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The streaming task retries failed writes, and keeps the messages until then."""
    broker = OnKafka(kafka)
    shop = away_on(site, broker, tmp_path)
    failures = [StoreError("the disk is away")]

    def fail(point: str) -> None:
        if point == "store.put" and failures:
            raise failures.pop()

    def drop() -> None:
        dropping = broker.dropper("orders")
        publish(shop, order("late", 5000))
        dropping()
        fault_points.install(fail)

    after_the_first_batch(monkeypatch, drop)
    rules = (shop.folder / "rules" / "rules.yaml").read_text()
    shop.write_rules(rules + "runners:\n  orders: {mode: streaming, streaming: {batch_interval: 1s}}\n")
    publish(shop, *(order(number, 5000) for number in range(30)))
    deliver_all(shop.runtime, "orders", "streaming")
    fault_points.install(None)
    (tmp_path / "away").unlink()
    retry(shop)

    found = audit(shop.runtime)
    assert delivered(tmp_path) == delivered(tmp_path / "away") == sorted([*map(str, range(30)), "late"])
    assert (failures, found.events["gaps"], found.events["read"], found.differences) == ([], 0, 31, ())


def test_messages_left_on_the_bus_by_a_crash_are_taken_as_far_as_they_exist(
    shop: Any, broker: Broker, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with `offset_reset: latest`: messages with a response are not passed over. The rest is lost."""
    offset_reset(shop, "latest")
    publish(shop, order("gone", 5000))
    dropping = broker.dropper("orders")
    publish(shop, order("there", 5000))

    class DyingBatch(StreamingBatch):
        def run(self) -> bool:
            super().run()
            assert self.record()
            dropping()
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(streaming, "StreamingBatch", DyingBatch)
        with pytest.raises(Killed):
            deliver_all(shop.runtime, "orders", "streaming")
    deliver_all(shop.runtime, "orders", "streaming")
    (tmp_path / "away").unlink()
    retry(shop)

    found = audit(shop.runtime)
    assert (delivered(tmp_path), delivered(tmp_path / "away")) == (["gone", "there"], ["there"])
    assert (found.events["gaps"], found.events["read"], found.differences) == (1, 1, ())
