"""A deleted or replaced bus is never mistaken for the original one, however many events the new one has."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest

from eventbridge.errors import OffsetGapError, RuleMovedError
from eventbridge.model.partition import ConsumerOffset, Partition
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.runtime.identity import offset_gaps, standing_offset
from eventbridge.runtime.runtime import Runtime
from eventbridge.testing.sources import InMemoryLog

Order = Callable[..., bytes]
Settle = Callable[[Runtime, str], None]
Q0, Q1 = Partition("placed", "", 0), Partition("placed", "", 1)

MOVED = """
buses:
  orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: latest}}
rules:
  big: {bus: orders, runner: again, pattern: {}, targets: {crm: {type: file, path: /tmp/never-written/crm.jsonl}}}
"""


def committed(site: Any, order: Order, settle_by_ledger: Settle) -> None:
    """Deliver four orders in a batch, so that the runner is at offset 2 of both partitions."""
    site.publish(*(order(number) for number in range(4)))
    settle_by_ledger(site.runtime, listen(site.runtime, "orders") or "")


def lose_bus(site: Any) -> None:
    """Move the bus's files away; the next publisher creates new ones."""
    (site.folder / "bus").rename(site.folder / "lost")


def identity(site: Any) -> str:
    with site.bus() as bus:
        return bus.identities()["placed"]


def ranges(runtime: Runtime, batch_id: str | None) -> list[tuple[Partition, int, int]]:
    assert batch_id is not None
    return [(taken.partition, taken.start, taken.end) for taken in runtime.ledger.batches.ranges(batch_id)]


def test_a_recreated_bus_stops_the_runner_though_it_holds_more(
    site: Any, order: Order, settle_by_ledger: Settle
) -> None:
    """A recreated bus stops the runner, even if it has more events; the error has both identities and the remedy."""
    committed(site, order, settle_by_ledger)
    was = identity(site)
    lose_bus(site)
    site.publish(*(order(number) for number in range(100, 110)))
    offsets, batches = site.runtime.ledger.offsets.find(), site.runtime.ledger.batches.find()

    with pytest.raises(OffsetGapError) as stopped:
        listen(site.runtime, "orders")

    reported = str(stopped.value)
    assert f"'orders' is at offset 2 of placed/0 of the bus 'orders' with the identity {was}" in reported
    assert f"{(site.folder / 'bus' / 'orders.sqlite').as_uri()} has the identity {identity(site)}" in reported
    assert re.search(r"Put the right log back.*Or.*a runner with a new name", reported)
    assert (site.runtime.ledger.offsets.find(), site.runtime.ledger.batches.find()) == (offsets, batches)
    with site.bus() as bus:
        assert bus.committed("orders") == {}


def test_with_the_right_bus_back_the_runner_continues(site: Any, order: Order, settle_by_ledger: Settle) -> None:
    """With the original bus, the next batch begins where the last one ended, without a reset."""
    committed(site, order, settle_by_ledger)
    site.publish(order(4), order(5))
    lose_bus(site)
    site.publish(*(order(number) for number in range(100, 110)))
    with pytest.raises(OffsetGapError):
        listen(site.runtime, "orders")
    shutil.rmtree(site.folder / "bus")
    (site.folder / "lost").rename(site.folder / "bus")

    assert ranges(site.runtime, listen(site.runtime, "orders")) == [(Q0, 2, 3), (Q1, 2, 3)]


def test_a_runner_of_a_new_name_takes_all_that_the_new_bus_holds(
    site: Any, order: Order, settle_by_ledger: Settle
) -> None:
    """A runner with a new name reads all events of the new bus, even with `start_at: latest`."""
    committed(site, order, settle_by_ledger)
    lose_bus(site)
    site.publish(*(order(number) for number in range(100, 110)))
    site.write_rules(MOVED)

    batch_id = listen(site.runtime, "again")
    buffer(site.runtime, batch_id or "")

    assert ranges(site.runtime, batch_id) == [(Q0, 0, 5), (Q1, 0, 5)]
    assert listen(site.runtime, "again") == batch_id


def test_a_rule_that_has_not_seen_the_new_bus_is_refused_by_a_runner_that_has(
    site: Any, order: Order, settle_by_ledger: Settle
) -> None:
    """A runner that is past some events of the new bus does not take over a rule that has not seen them."""
    committed(site, order, settle_by_ledger)
    lose_bus(site)
    site.publish(*(order(number) for number in range(100, 104)))
    site.write_rules(MOVED.replace("big:", "fresh:"))
    assert listen(site.runtime, "again") is None
    site.write_rules(MOVED)

    with pytest.raises(RuleMovedError, match="which is 4 events ahead"):
        listen(site.runtime, "again")


def test_an_older_copy_of_the_bus_is_taken_up_from_its_beginning(
    site: Any, order: Order, settle_by_ledger: Settle
) -> None:
    """An older copy of the bus is read from its beginning, so that events are repeated rather than lost."""
    site.publish(order(1), order(2))
    shutil.copytree(site.folder / "bus", site.folder / "copy")
    site.publish(order(3), order(4))
    settle_by_ledger(site.runtime, listen(site.runtime, "orders") or "")
    lose_bus(site)
    (site.folder / "copy").rename(site.folder / "bus")
    site.write_rules(MOVED)

    assert ranges(site.runtime, listen(site.runtime, "again")) == [(Q0, 0, 1), (Q1, 0, 1)]


def test_a_batch_is_not_landed_from_another_bus(site: Any, order: Order) -> None:
    """A bus that is replaced between listen and buffer stops buffer, which lands nothing of it."""
    site.publish(order(1), order(2))
    batch_id = listen(site.runtime, "orders") or ""
    lose_bus(site)
    site.publish(order(3), order(4))

    with pytest.raises(OffsetGapError, match="was deleted or replaced"):
        buffer(site.runtime, batch_id)
    assert site.runtime.ledger.files.list_for_batch(batch_id, "buffer") == []
    assert site.runtime.ledger.batches.get(batch_id).state == "planned"


def test_a_topic_of_another_bus_is_not_registered(site: Any, order: Order, settle_by_ledger: Settle) -> None:
    """A topic that was added after the bus was replaced is not registered, because it is on the wrong bus."""
    committed(site, order, settle_by_ledger)
    lose_bus(site)
    site.publish(*(order(number) for number in range(8)))
    text = (site.folder / "rules" / "rules.yaml").read_text()
    site.write_rules(text.replace("topics: [placed]", "topics: [placed, paid]"))

    with pytest.raises(OffsetGapError):
        listen(site.runtime, "orders")
    assert set(site.runtime.ledger.offsets.committed("orders")) == {Q0, Q1}


def test_every_partition_is_registered_with_the_identity(site: Any, order: Order) -> None:
    """Partitions of the first topics and of later ones are registered with the bus's identity."""
    listen(site.runtime, "orders")
    text = (site.folder / "rules" / "rules.yaml").read_text()
    site.write_rules(text.replace("topics: [placed]", "topics: [placed, paid]"))
    listen(site.runtime, "orders")

    rows = site.runtime.ledger.offsets.find("orders")
    assert [row.partition.topic for row in rows] == ["paid", "paid", "placed", "placed"]
    assert {row.bus_identity for row in rows} == {identity(site)}


def test_offsets_of_an_earlier_version_count_on_the_current_bus(
    site: Any, order: Order, settle_by_ledger: Settle
) -> None:
    """A ledger without a bus identity records it at the next listen, unless the log ends before the offsets."""
    committed(site, order, settle_by_ledger)
    site.close()
    with closing(sqlite3.connect(site.folder / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE consumer_offset SET bus_identity = ''")
    lose_bus(site)
    with pytest.raises(OffsetGapError, match="which ends at 0"):
        listen(site.runtime, "orders")
    shutil.rmtree(site.folder / "bus")
    (site.folder / "lost").rename(site.folder / "bus")

    assert listen(site.runtime, "orders") is None

    assert {row.bus_identity for row in site.runtime.ledger.offsets.find()} == {identity(site)}


class NamelessLog(InMemoryLog):
    """A log on a bus whose topics have no identity."""

    def identities(self) -> Mapping[str, str]:
        return {}


def test_a_log_without_identity_is_known_by_the_last_message(site: Any, clock: Any, order: Order) -> None:
    """A recreated log is reported for all partitions of its topic, unless that message was dropped or never
    recorded.
    """
    bus = site.runtime.rule_set().buses["orders"]
    log = NamelessLog(topics=["placed"], partitions=2, clock=clock)
    log.publish([(order(number), None) for number in range(4)])
    at = round(clock.now.timestamp() * 1_000_000)
    rows = [
        ConsumerOffset("orders", "orders", partition, 2, text, clock.now)
        for partition, text in ((Q0, f"1@{at}"), (Q1, ""))
    ]
    assert offset_gaps(bus, log, rows) == {}
    log.lose(Q0, 1, 2)
    assert offset_gaps(bus, log, rows) == {}
    log.replace()
    clock.advance(1)
    log.publish([(order(number), None) for number in range(6)])

    reported = offset_gaps(bus, log, rows)
    assert set(reported) == {Q0, Q1}
    assert "recreated" in reported[Q0]
    assert [standing_offset(row, bus, log) for row in rows] == [0, 2]
