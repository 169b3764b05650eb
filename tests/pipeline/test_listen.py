from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pipeline.delivering import operational_events

from eventbridge.errors import NotFoundError, OffsetGapError, StoreError, UserError
from eventbridge.model.batch import BatchFile, Range
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.ingest.start_offsets import later_start
from eventbridge.runtime.runtime import Runtime
from eventbridge.testing.sources import InMemoryLog

Q0, Q1 = Partition("placed", "", 0), Partition("placed", "", 1)

RULES_AT = """
buses:
  orders:
    source: {{type: embedded, topics: {topics}, partitions: 2, start_at: {start_at}}}
rules:
  everything:
    bus: orders
    pattern: {{}}
    targets:
      archive: {{type: file, path: /tmp/never-written/archive.jsonl}}
"""


def ranges(runtime: Runtime, batch_id: str | None) -> list[tuple[Partition, int, int]]:
    assert batch_id is not None
    return [(taken.partition, taken.start, taken.end) for taken in runtime.ledger.batches.ranges(batch_id)]


def test_a_batch_covers_what_the_bus_holds(site: Any, order: Callable[..., bytes]) -> None:
    """The first listen registers the group and plans all messages in its partitions, with the current rules."""
    site.publish(*[order(number) for number in range(10)])

    batch_id = listen(site.runtime, "orders")

    batch = site.runtime.ledger.batches.get(batch_id)
    assert ranges(site.runtime, batch_id) == [(Q0, 0, 5), (Q1, 0, 5)]
    assert (batch.kind, batch.state, batch.bus) == ("normal", "planned", "orders")
    assert site.runtime.rules_of(batch) == site.runtime.rule_set()


def test_nothing_available_plans_nothing(site: Any) -> None:
    """An empty bus gives no batch, but its group is registered."""
    assert listen(site.runtime, "orders") is None
    assert site.runtime.ledger.offsets.committed("orders") == {Q0: 0, Q1: 0}
    assert site.runtime.ledger.batches.find() == []


def test_the_unfinished_batch_comes_first(site: Any, order: Callable[..., bytes]) -> None:
    """While a batch is not committed every listen returns it, whatever else is published."""
    site.publish(order(1))
    first = listen(site.runtime, "orders")
    site.publish(order(2))

    assert listen(site.runtime, "orders") == first
    assert len(site.runtime.ledger.batches.find()) == 1


def test_the_next_batch_begins_where_the_last_one_ended(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Callable[[Runtime, str], None]
) -> None:
    """Consecutive batches have consecutive ranges."""
    site.publish(*[order(number) for number in range(4)])
    settle_by_ledger(site.runtime, listen(site.runtime, "orders") or "")
    site.publish(*[order(number) for number in range(4, 10)])

    assert ranges(site.runtime, listen(site.runtime, "orders")) == [(Q0, 2, 5), (Q1, 2, 5)]


def test_a_batch_takes_a_fair_share_of_each_partition(site: Any, order: Callable[..., bytes]) -> None:
    """A batch takes at most batch_max_events, the same number from each partition."""
    with site.bus() as bus:
        keys = {
            partition.partition_id: key
            for key in map(str, range(20))
            for partition, _ in [bus.publish([(b"{}", key)])[0]]
        }
        bus.publish([(order(number), keys[0]) for number in range(600 - bus.end(Q0))])
        bus.publish([(order(number), keys[1]) for number in range(200 - bus.end(Q1))])

    assert ranges(site.reopen(batch_max_events=40), listen(site.runtime, "orders")) == [(Q0, 0, 20), (Q1, 0, 20)]


def test_large_events_make_smaller_batches(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Callable[[Runtime, str], None]
) -> None:
    """The mean size of the last batch's events bounds the number of the next one's."""
    runtime = site.reopen(batch_max_size="1MiB")
    site.publish(*[order(number) for number in range(40)])
    batch_id = listen(runtime, "orders") or ""
    detail = LandedRange(partition=Q0, start=0, end=40, read=40, size=40 * (1 << 17))
    assert runtime.ledger.files.record(BatchFile(batch_id, "buffer", "k", None, 40, detail), while_state="planned")
    settle_by_ledger(runtime, batch_id)
    site.publish(*[order(number) for number in range(40, 80)])

    taken = ranges(runtime, listen(runtime, "orders"))

    assert sum(end - start for _, start, end in taken) == 8


@pytest.mark.parametrize(("start_at", "expected"), [("latest", 2), ("earliest", 0), ("2026-03-01T12:00:30Z", 1)])
def test_start_at_is_resolved_once(
    site: Any, clock: Any, order: Callable[..., bytes], start_at: str, expected: int
) -> None:
    """The start of a new group is determined when it is registered; later changes of `start_at` have no effect."""
    site.write_rules(RULES_AT.format(topics="[placed]", start_at=start_at))
    site.publish(order(1), order(2))
    clock.advance(60)
    site.publish(order(3), order(4))

    listen(site.runtime, "orders")
    site.write_rules(RULES_AT.format(topics="[placed]", start_at="earliest"))
    listen(site.runtime, "orders")

    assert site.runtime.ledger.offsets.committed("orders") == {Q0: expected, Q1: expected}


def test_a_partition_that_appears_later_starts_at_its_beginning(site: Any, order: Callable[..., bytes]) -> None:
    """No message of a new partition has been seen before, so `start_at: latest` does not skip its messages."""
    site.write_rules(RULES_AT.format(topics="[placed]", start_at="latest"))
    assert listen(site.runtime, "orders") is None
    site.write_rules(RULES_AT.format(topics="[placed, paid]", start_at="latest"))
    site.publish(order(1), topic="paid")

    assert ranges(site.runtime, listen(site.runtime, "orders")) == [(Partition("paid", "", 0), 0, 1)]


def test_of_a_broker_that_was_away_latest_is_when_the_runner_came(
    site: Any, clock: Any, order: Callable[..., bytes]
) -> None:
    """`latest` skips events from before the runner, except the last minutes, by which clocks may differ."""
    site.write_rules(RULES_AT.format(topics="[placed]", start_at="latest"))
    bus = site.runtime.rule_set().buses["orders"]
    log = InMemoryLog(topics=["placed"], partitions=0, clock=clock)
    partition = log.add_partition("placed", "broker-b")
    log.publish([(order(1), None)])
    clock.advance(3600)
    assert listen(site.runtime, "orders") is None
    log.publish([(order(2), None)])

    assert later_start(site.runtime, "orders", bus, log, partition) == 1
    assert later_start(site.runtime, "nobody", bus, log, partition) == 0


def test_a_topic_that_is_no_longer_named_is_let_be(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Callable[[Runtime, str], None]
) -> None:
    """A topic removed from the file is not consumed and is no gap; the group's offset in it is kept."""
    site.write_rules(RULES_AT.format(topics="[placed, paid]", start_at="earliest"))
    site.publish(order(1), topic="paid")
    settle_by_ledger(site.runtime, listen(site.runtime, "orders") or "")
    site.publish(order(2), topic="paid")
    site.publish(order(3))
    site.write_rules(RULES_AT.format(topics="[placed]", start_at="earliest"))

    assert ranges(site.runtime, listen(site.runtime, "orders")) == [(Q0, 0, 1)]
    assert site.runtime.ledger.offsets.committed("orders")[Partition("paid", "", 0)] == 1


def test_an_expired_part_of_the_log_is_planned_as_a_gap(site: Any, clock: Any, order: Callable[..., bytes]) -> None:
    """What retention dropped before it was read is in the range for buffer to record, and does not count as events."""
    assert listen(site.runtime, "orders") is None
    site.publish(*[order(number) for number in range(100)])
    clock.advance(60)
    site.publish(*[order(number) for number in range(100, 104)])
    with site.bus() as bus:
        bus.trim(clock())

    assert ranges(site.reopen(batch_max_events=4), listen(site.runtime, "orders")) == [(Q0, 0, 52), (Q1, 0, 52)]


def test_a_log_that_ends_before_the_group_stops_the_runner(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Callable[[Runtime, str], None]
) -> None:
    """A bus that was restored from an older copy stops the runner with an error."""
    site.publish(order(1), order(2))
    shutil.copytree(site.folder / "bus", site.folder / "copy")
    site.publish(order(3), order(4))
    settle_by_ledger(site.runtime, listen(site.runtime, "orders") or "")
    shutil.rmtree(site.folder / "bus")
    (site.folder / "copy").rename(site.folder / "bus")

    with pytest.raises(OffsetGapError, match=r"'orders' is at offset 2 of placed/0, which ends at 1"):
        listen(site.runtime, "orders")


def test_a_short_disk_stops_planning_only(site: Any, order: Callable[..., bytes]) -> None:
    """With too little free space no batch is planned; an existing one is still returned."""
    site.publish(order(1))
    assert listen(site.reopen(disk_min_free_size="1000GiB"), "orders") is None
    assert site.runtime.ledger.batches.find() == []

    batch_id = listen(site.reopen(), "orders")

    assert listen(site.reopen(disk_min_free_size="1000GiB"), "orders") == batch_id


def test_ingestion_resumes_by_itself_above_the_high_watermark(site: Any, order: Callable[..., bytes]) -> None:
    """Between the watermarks nothing changes; each change is one operational event, however often it is checked."""
    site.publish(order(1))
    between = {"disk_min_free_size": "0", "disk_resume_free_size": "1000GiB"}
    short = site.reopen(disk_min_free_size="1000GiB")
    assert listen(short, "orders") is None
    assert "EVENTBRIDGE_DISK_MIN_FREE_SIZE" in short.ledger.ingestion.current_stop().reason
    assert listen(site.reopen(**between), "orders") is None

    assert listen(site.reopen(), "orders") is not None

    assert listen(site.reopen(**between), "orders") is not None
    assert site.runtime.ledger.ingestion.current_stop() is None
    assert [event["type"] for event in operational_events(site.runtime)] == ["ingestion.stopped", "ingestion.resumed"]


def test_an_unknown_runner_is_an_error(site: Any) -> None:
    """Listening for a runner that no rule names is an error."""
    with pytest.raises(NotFoundError, match=r"no rule has the runner 'oders'\. Did you mean orders"):
        listen(site.runtime, "oders")


def test_a_runner_keeps_its_bus(site: Any) -> None:
    """Rules on another bus need a runner with a new name, because offsets do not identify their bus."""
    listen(site.runtime, "orders")
    site.write_rules(
        "buses: {returns: {source: {type: embedded}}}\n"
        "rules: {all: {bus: returns, runner: orders, pattern: {}, targets: {f: {type: file, path: /tmp/f}}}}\n"
    )

    with pytest.raises(UserError, match=r"has consumed the bus 'orders' until now, but its rules name 'returns'"):
        listen(site.runtime, "orders")


def test_a_bus_commit_that_failed_is_repeated(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Callable[[Runtime, str], None]
) -> None:
    """The bus gets the group's current offsets, even after several missed commits, and never moves back."""
    runtime = site.runtime
    for number in range(2):
        site.publish(order(number), order(number + 10))
        batch = runtime.ledger.batches.unfinished("orders")
        settle_by_ledger(runtime, batch.batch_id if batch else listen_without_repeat(runtime))
    with site.bus() as bus:
        assert bus.committed("orders") == {}

    assert listen(runtime, "orders") is None

    with site.bus() as bus:
        assert bus.committed("orders") == {Q0: 2, Q1: 2}
    assert runtime.ledger.settlement.bus_commits_outstanding("orders") == []


def listen_without_repeat(runtime: Runtime) -> str:
    """Plan the next batch as if the bus did not accept commits."""

    class Deaf(Runtime):
        def open_source(self, bus: Any) -> Any:
            source = super().open_source(bus)
            source.commit = _refuse
            return source

    batch_id = listen(Deaf(**vars(runtime)), "orders")
    assert batch_id is not None
    return batch_id


def _refuse(*_: object) -> None:
    from eventbridge.errors import BusError

    raise BusError("the bus is deaf")


def test_a_bus_that_stays_deaf_does_not_stop_the_runner(
    site: Any,
    order: Callable[..., bytes],
    settle_by_ledger: Callable[[Runtime, str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the ledger is authoritative, the next batch is planned with a warning, and the commit is repeated later."""
    runtime = site.runtime
    site.publish(order(1), order(2))
    settle_by_ledger(runtime, listen(runtime, "orders") or "")
    site.publish(order(3), order(4))

    batch_id = listen_without_repeat(runtime)

    assert ranges(runtime, batch_id) == [(Q0, 1, 2), (Q1, 1, 2)]
    assert len(runtime.ledger.settlement.bus_commits_outstanding("orders")) == 1
    assert "still does not accept the offsets of runner orders: the bus is deaf" in caplog.text


def test_two_at_once_get_the_same_batch(site: Any, order: Callable[..., bytes]) -> None:
    """If several processes listen concurrently, one batch is planned and all of them get it."""
    site.publish(*[order(number) for number in range(6)])
    works = [site.reopen() for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda runtime: listen(runtime, "orders"), works))

    assert len(set(ids)) == 1
    assert len(site.runtime.ledger.batches.find()) == 1


def test_events_committed_meanwhile_are_not_planned_again(
    site: Any, order: Callable[..., bytes], settle_by_ledger: Callable[[Runtime, str], None]
) -> None:
    """A process that read the bus before another one committed those events plans no batch of them."""
    site.publish(*[order(number) for number in range(6)])
    done = listen(site.runtime, "orders")
    settle_by_ledger(site.runtime, done)
    ledger = site.runtime.ledger
    late = replace(ledger.batches.get(done), batch_id="late", state="planned")

    assert not ledger.batches.plan(late, ledger.batches.ranges(done))

    assert ledger.batches.unfinished("orders") is None
    assert [batch.batch_id for batch in ledger.batches.find()] == [done]


def test_it_may_die_anywhere(
    site: Any, order: Callable[..., bytes], dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Wherever listen dies, the next one plans the one batch that covers everything."""
    site.publish(*[order(number) for number in range(6)])

    deaths = 0
    for wreck in dying_everywhere(site, lambda runtime: listen(runtime, "orders")):
        runtime = wreck.reopen()
        batch_id = listen(runtime, "orders")
        deaths += 1

        assert ranges(runtime, batch_id) == [(Q0, 0, 3), (Q1, 0, 3)]
        assert len(runtime.ledger.batches.find()) == 1
        assert runtime.ledger.batches.ranges(batch_id) == [Range(Q0, 0, 3), Range(Q1, 0, 3)]
        assert runtime.rules_of(runtime.ledger.batches.get(batch_id)) == runtime.rule_set()
    assert deaths > 20


def test_planned_at_is_the_ledgers_time(site: Any, clock: Any, order: Callable[..., bytes]) -> None:
    """A batch's `planned_at` comes from the injected clock."""
    site.publish(order(1))
    clock.advance(1234)
    expected: datetime = clock()

    assert site.runtime.ledger.batches.get(listen(site.runtime, "orders") or "").planned_at == expected


def test_a_home_that_cannot_be_made_is_reported(site: Any, tmp_path: Path) -> None:
    """A file in place of the home folder is an error that names the setting."""
    (tmp_path / "file").write_text("")
    site.folder = tmp_path / "file" / "home"

    with pytest.raises(StoreError, match="EVENTBRIDGE_HOME"):
        site.reopen()
