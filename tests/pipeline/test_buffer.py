from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from stored import dead_letters

from eventbridge.errors import InfrastructureError, OffsetGapError
from eventbridge.model.partition import Partition
from eventbridge.pipeline.deliver import deliver_batch
from eventbridge.pipeline.ingest import checking
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.repair.audit import audit, reconciliation_of_manifest
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.store.parquet import read_table
from eventbridge.testing.sources import InMemoryLog
from eventbridge.views.stats import daily_stats

Order = Callable[..., bytes]

Q0, Q1 = Partition("placed", "", 0), Partition("placed", "", 1)


def planned(site: Any, **settings: Any) -> tuple[Runtime, str]:
    """Plan a batch over everything published, and return it with the runtime."""
    runtime: Runtime = site.reopen(**settings)
    batch_id = listen(runtime, "orders")
    assert batch_id is not None
    return runtime, batch_id


def landed(runtime: Runtime, batch_id: str) -> list[dict[str, Any]]:
    """Return the rows of all recorded files, in the order of their keys."""
    rows: list[dict[str, Any]] = []
    for file in runtime.ledger.files.list_for_batch(batch_id, "buffer"):
        if file.path is not None:
            rows += read_table(runtime.store, file.path).to_pylist()
    return rows


def positions(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition_id"], row["offset"]) for row in rows]


def details(runtime: Runtime, batch_id: str, *names: str) -> list[tuple[Any, ...]]:
    return [
        tuple(getattr(file.detail, name) for name in names)
        for file in runtime.ledger.files.list_for_batch(batch_id, "buffer")
    ]


class OnLog(Runtime):
    """A runtime whose buses are all one log in memory."""

    def __init__(self, runtime: Runtime, log: InMemoryLog) -> None:
        super().__init__(**{each.name: getattr(runtime, each.name) for each in fields(Runtime)})
        object.__setattr__(self, "log", log)

    def open_source(self, bus: Any) -> Any:
        return self.log  # type: ignore[attr-defined]


def test_every_message_is_landed_as_it_arrived(site: Any, clock: Any, order: Order) -> None:
    """Each message becomes one row with its position, its times and its bytes; then the batch is buffered."""
    bodies = [order(number) for number in range(5)]
    site.publish(*bodies)
    published_at = clock()
    clock.advance(7)
    runtime, batch_id = planned(site)

    buffer(runtime, batch_id)

    rows = landed(runtime, batch_id)
    assert runtime.ledger.batches.get(batch_id).state == "buffered"
    assert positions(rows) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert sorted(row["body"] for row in rows) == sorted(bodies)
    assert {(row["published_at"], row["arrived_at"]) for row in rows} == {(published_at, clock())}
    assert [(row["status"], row["event_id"], row["source"], row["type"]) for row in rows[:1]] == [
        ("valid", json.loads(rows[0]["body"])["id"], "/shop", "order.placed")
    ]


def test_files_hold_a_bounded_number_of_events(site: Any, order: Order) -> None:
    """Ranges are landed and recorded in consecutive pieces."""
    site.publish(*[order(number) for number in range(10)])
    runtime, batch_id = planned(site, buffer_range_events=2)

    buffer(runtime, batch_id)

    assert details(runtime, batch_id, "partition", "start", "end", "read", "valid") == [
        (Q0, 0, 2, 2, 2),
        (Q0, 2, 4, 2, 2),
        (Q0, 4, 5, 1, 1),
        (Q1, 0, 2, 2, 2),
        (Q1, 2, 4, 2, 2),
        (Q1, 4, 5, 1, 1),
    ]
    assert [file.rows for file in runtime.ledger.files.list_for_batch(batch_id, "buffer")] == [2, 2, 1, 2, 2, 1]


def test_large_events_make_smaller_files(site: Any, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are also limited in bytes, so that memory does not depend on the size of events."""
    monkeypatch.setattr(checking, "FILE_MAX_BYTES", 10_000)
    site.publish(*[order(number, filler="x" * 4_000) for number in range(10)], key="one partition")
    runtime, batch_id = planned(site)

    buffer(runtime, batch_id)

    assert [read for (read,) in details(runtime, batch_id, "read")] == [3, 3, 3, 1]


def test_a_malformed_event_is_kept_with_its_reason(site: Any, order: Order) -> None:
    """A message that is not a CloudEvent becomes a row with the reason; the other messages are landed."""
    bad = [b"not json", b'{"id": "1"}', order(2, data_base64="AA=="), order(3, filler="x" * 2000), b"\xff"]
    site.publish(*bad, order(4), key="one partition")
    runtime, batch_id = planned(site, event_max_size=1024)

    buffer(runtime, batch_id)

    rows = landed(runtime, batch_id)
    assert [row["status"] for row in rows] == ["malformed"] * 5 + ["valid"]
    assert [row["body"] for row in rows[:5]] == bad
    assert "the largest allowed is 1,024" in rows[3]["reason"]
    assert all(row["reason"] for row in rows[:5])
    assert [row["event_id"] for row in rows] == [None] * 5 + ["4"]
    assert sorted(set(details(runtime, batch_id, "read", "malformed", "valid", "duplicate"))) == [(6, 5, 1, 0)]


def test_an_id_again_within_the_batch_is_a_duplicate(site: Any, order: Order) -> None:
    """An event with the same source and id is kept once, whichever file, partition or range repeats it."""
    site.publish(order(1), order(1), order(2), key="a")
    site.publish(order(1, amount=7), order(2), order(3), key="b")
    site.publish(order(1, source="/other"), key="a")
    runtime, batch_id = planned(site, buffer_range_events=2)

    buffer(runtime, batch_id)

    rows = landed(runtime, batch_id)
    valid = [(row["source"], row["event_id"]) for row in rows if row["status"] == "valid"]
    assert sorted(valid) == [("/other", "1"), ("/shop", "1"), ("/shop", "2"), ("/shop", "3")]
    assert [row["status"] for row in rows].count("duplicate") == 3
    assert sum(count for (count,) in details(runtime, batch_id, "duplicate")) == 3


def test_ids_of_recorded_files_are_known_to_the_next_try(site: Any, order: Order) -> None:
    """A try that continues after another one still finds duplicates of the events that the other one landed."""
    site.publish(*[order(number) for number in (1, 2, 3, 1, 2, 3)], key="one partition")
    runtime, batch_id = planned(site, buffer_range_events=3)
    stop_after(runtime, batch_id, files=1)

    buffer(runtime, batch_id)

    assert [row["status"] for row in landed(runtime, batch_id)] == ["valid"] * 3 + ["duplicate"] * 3


def stop_after(runtime: Runtime, batch_id: str, files: int) -> None:
    """Let a try end because of its prepare budget once it has recorded `files` files."""
    ticks = iter(range(1_000))

    def clock() -> Any:
        return start + timedelta(seconds=runtime.settings.prepare_timeout * next(ticks) / files / 2)

    start = runtime.clock()
    hurried = replace(runtime, clock=clock)
    with pytest.raises(InfrastructureError, match="EVENTBRIDGE_PREPARE_TIMEOUT"):
        buffer(hurried, batch_id)
    assert len(runtime.ledger.files.list_for_batch(batch_id, "buffer")) == files


def test_a_spent_budget_keeps_what_is_recorded(site: Any, order: Order) -> None:
    """When the prepare budget is spent, the stage says so and the batch stays planned; the next try does the rest."""
    site.publish(*[order(number) for number in range(8)], key="one partition")
    runtime, batch_id = planned(site, buffer_range_events=2)
    stop_after(runtime, batch_id, files=2)
    before = runtime.ledger.files.list_for_batch(batch_id, "buffer")
    assert runtime.ledger.batches.get(batch_id).state == "planned"

    buffer(runtime, batch_id)

    assert runtime.ledger.files.list_for_batch(batch_id, "buffer")[:2] == before
    assert [place for _, place in positions(landed(runtime, batch_id))] == list(range(8))


def test_a_budget_of_nothing_still_moves_on(site: Any, order: Order) -> None:
    """With any budget, every try records at least one file, so a batch cannot hang forever."""
    site.publish(*[order(number) for number in range(6)], key="one partition")
    runtime, batch_id = planned(site, buffer_range_events=2)
    start = runtime.clock()
    ticks = iter(range(1_000))
    slow = replace(runtime, clock=lambda: start + timedelta(hours=next(ticks)))

    for _ in range(2):
        with pytest.raises(InfrastructureError):
            buffer(slow, batch_id)
    buffer(slow, batch_id)

    assert runtime.ledger.batches.get(batch_id).state == "buffered"


def test_expired_messages_are_recorded_as_a_gap(site: Any, clock: Any, order: Order) -> None:
    """Offsets that retention dropped before they were read are recorded, so that range = read + gaps."""
    site.publish(*[order(number) for number in range(4)], key="one partition")
    runtime, batch_id = planned(site)
    clock.advance(60)
    with site.bus() as bus:
        bus.trim(clock())

    buffer(runtime, batch_id)

    assert details(runtime, batch_id, "start", "end", "read", "gaps") == [(0, 4, 0, ((0, 4),))]
    assert runtime.ledger.files.list_for_batch(batch_id, "buffer")[0].path is None
    assert runtime.ledger.batches.get(batch_id).state == "buffered"


def test_holes_inside_a_log_are_recorded(site: Any, clock: Any, order: Order) -> None:
    """A compacted log's holes at the beginning, inside and at the end are gaps and not errors."""
    log = InMemoryLog(topics=("placed",), partitions=1, clock=clock)
    log.publish([(order(number), None) for number in range(10)])
    partition = Partition("placed", "", 0)

    runtime = OnLog(site.reopen(buffer_range_events=3), log)
    batch_id = listen(runtime, "orders") or ""
    for start, end in ((0, 1), (3, 6), (9, 10)):
        log.lose(partition, start, end)

    buffer(runtime, batch_id)

    assert [place for _, place in positions(landed(runtime, batch_id))] == [1, 2, 6, 7, 8]
    assert details(runtime, batch_id, "start", "end", "gaps") == [(0, 7, ((0, 1), (3, 6))), (7, 10, ((9, 10),))]


def test_a_tombstone_is_counted_and_no_dead_letter(site: Any, clock: Any, order: Order) -> None:
    """A message without a body, which reports a deleted key, is neither an event nor a malformed event."""
    log = InMemoryLog(topics=("placed",), partitions=1, clock=clock)
    for body in (order(1), None, order(2)):
        log.append(Partition("placed", "", 0), body, b"key")
    runtime = OnLog(site.reopen(), log)
    batch_id = listen(runtime, "orders") or ""

    buffer(runtime, batch_id)

    rows = landed(runtime, batch_id)
    assert [(row["status"], row["body"], row["reason"]) for row in rows][1] == ("tombstone", b"", None)
    assert details(runtime, batch_id, "read", "valid", "malformed", "tombstone", "gaps") == [(3, 2, 0, 1, ())]


def test_tombstones_are_in_the_reconciliation_of_a_batch(site: Any, clock: Any, order: Order, tmp_path: Path) -> None:
    """The batch commits, nothing is a dead letter, and audit, manifest and stats count them."""
    site.write_rules(
        "buses:\n  orders: {source: {type: embedded, topics: [placed], start_at: earliest}}\n"
        "rules:\n  all: {bus: orders, runner: orders, pattern: {}, "
        f"targets: {{f: {{type: file, path: {tmp_path}/f}}}}}}\n"
    )
    log = InMemoryLog(topics=("placed",), partitions=1, clock=clock)
    for body in (order(1), None, b"no event", None, order(2)):
        log.append(Partition("placed", "", 0), body, b"key")
    runtime = OnLog(site.reopen(), log)

    batch_id = deliver_batch(runtime, "orders", InProcessRouter(runtime.store), Stop())

    events = audit(runtime).events
    assert {name: events[name] for name in ("read", "valid", "malformed", "tombstone")} == {
        "read": 5,
        "valid": 2,
        "malformed": 1,
        "tombstone": 2,
    }
    assert audit(runtime).differences == ()
    assert [dead_letter["reason"] for dead_letter in dead_letters(runtime)] == ["malformed"]
    clock.advance(60)
    (bus,) = daily_stats(runtime, 1).buses
    assert (bus.valid, bus.malformed, bus.tombstone) == (2, 1, 2)
    assert reconciliation_of_manifest(runtime, runtime.ledger.batches.get(batch_id or "")).tombstone == 2


def test_a_log_that_was_replaced_stops_the_stage(site: Any, order: Order) -> None:
    """A bus that ends before the end of the range is an error, not a gap."""
    site.publish(*[order(number) for number in range(4)])
    runtime, batch_id = planned(site)
    for file in (site.folder / "bus").iterdir():
        file.unlink()

    with pytest.raises(OffsetGapError):
        buffer(runtime, batch_id)
    assert runtime.ledger.batches.get(batch_id).state == "planned"


def test_later_calls_change_nothing(site: Any, order: Order) -> None:
    """Once the batch is buffered the stage does nothing."""
    site.publish(order(1), order(2))
    runtime, batch_id = planned(site)
    buffer(runtime, batch_id)
    before = runtime.ledger.files.list_for_batch(batch_id, "buffer")

    buffer(runtime, batch_id)

    assert runtime.ledger.files.list_for_batch(batch_id, "buffer") == before


def test_two_at_once_land_everything_once(site: Any, order: Order) -> None:
    """Two tries of one batch share the recorded files; no message is landed twice, no duplicate is missed."""
    site.publish(*[order(number % 30) for number in range(60)])
    _, batch_id = planned(site, buffer_range_events=4)
    works = [site.reopen(buffer_range_events=4) for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda runtime: buffer(runtime, batch_id), works))

    rows = landed(site.runtime, batch_id)
    assert sorted(positions(rows)) == [(partition, offset) for partition in range(2) for offset in range(30)]
    valid = [row["event_id"] for row in rows if row["status"] == "valid"]
    assert sorted(valid, key=int) == [str(number) for number in range(30)]


def test_a_try_that_was_overtaken_continues_from_there(site: Any, order: Order) -> None:
    """A try whose file is rejected because another try recorded the range first uses that file and does the rest."""
    site.publish(*[order(number) for number in (1, 2, 3, 1, 4, 5)], key="one partition")
    runtime, batch_id = planned(site, buffer_range_events=2)

    class Overtaken(Runtime):
        def open_source(self, bus: Any) -> Any:
            source: Any = super().open_source(bus)
            read = source.read

            def read_late(*span: Any) -> Any:
                messages = list(read(*span))
                if not runtime.ledger.files.list_for_batch(batch_id, "buffer"):
                    stop_after(runtime, batch_id, files=1)
                return iter(messages)

            source.read = read_late
            return source

    buffer(Overtaken(**vars(runtime)), batch_id)

    assert runtime.ledger.batches.get(batch_id).state == "buffered"
    assert [place for _, place in positions(landed(runtime, batch_id))] == list(range(6))
    assert [row["status"] for row in landed(runtime, batch_id)].count("duplicate") == 1


def test_it_may_die_anywhere(site: Any, order: Order, dying_everywhere: Callable[..., Iterator[Any]]) -> None:
    """Wherever buffer dies, the next try ends with every message landed once, counted, and the batch buffered."""
    site.publish(order(1), order(2), b"bad", order(1), order(3), order(2))
    _, batch_id = planned(site)

    def stage(runtime: Runtime) -> None:
        buffer(runtime, batch_id)

    for wreck in dying_everywhere(site, stage):
        runtime = wreck.reopen()
        stage(runtime)
        rows = landed(runtime, batch_id)

        assert runtime.ledger.batches.get(batch_id).state == "buffered"
        assert positions(rows) == [(partition, offset) for partition in range(2) for offset in range(3)]
        assert sorted(row["event_id"] for row in rows if row["status"] == "valid") == ["1", "2", "3"]
        assert sum(map(sum, details(runtime, batch_id, "valid", "duplicate", "malformed"))) == 6
