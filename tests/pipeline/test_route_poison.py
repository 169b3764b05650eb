"""A batch that cannot be routed is split, so that all events but the failing one are delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from stored import dead_letters

from eventbridge.dead_letters.reader import subject_of
from eventbridge.errors import SparkError, StoreError
from eventbridge.model.file_detail import SplitSlice, UnroutableEvent
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route import stage as route_module
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.job import RouteJob, SliceResult, Task
from eventbridge.routing.task import InProcessRouter, route_task
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.parquet import read_table
from eventbridge.store.protocol import Store
from eventbridge.testing.poison import RAISING, route_with_poison

Order = Callable[..., bytes]


class Watched:
    """A router in this process that records its jobs, and whose Spark may end after some of them."""

    def __init__(self, runtime: Runtime, jobs: int = 1_000_000) -> None:
        self._inner = InProcessRouter(runtime.store, route_with_poison)
        self._jobs = jobs
        self.asked: list[list[str]] = []

    def route_slices(self, job: RouteJob, slices: Sequence[Task]) -> Iterator[SliceResult]:
        self.asked.append([piece.slice_id for piece in slices])
        if len(self.asked) > self._jobs:
            raise SparkError("Spark is gone")
        yield from self._inner.route_slices(job, slices)


def landed(site: Any, *bodies: bytes) -> tuple[Runtime, str]:
    """Land a batch of one partition."""
    site.publish(*bodies, key="one partition")
    runtime: Runtime = site.runtime
    batch_id = listen(runtime, "orders") or ""
    buffer(runtime, batch_id)
    return runtime, batch_id


def poisoned(order: Order, count: int, *bad: int) -> list[bytes]:
    """Return `count` orders; those at the indexes in `bad` fail to route."""
    return [order(number, subject=RAISING.decode() if number in bad else "good") for number in range(count)]


def routed_ids(runtime: Runtime, batch_id: str) -> list[str]:
    """Return the events that rule `everything` delivers, in the order of the batch's files."""
    files = [file.path for file in runtime.ledger.files.list_for_batch(batch_id, "delivery") if file.path]
    tables = [read_table(runtime.store, path, columns=["rule", "event_id"]) for path in files]
    return [row["event_id"] for table in tables for row in table.to_pylist() if row["rule"] == "everything"]


def finish(runtime: Runtime, batch_id: str) -> None:
    """Settle and commit a batch without a push."""
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)
    assert commit(runtime, batch_id)


def test_one_event_that_cannot_be_routed_is_a_dead_letter(site: Any, order: Order) -> None:
    """The two of thirty events that raise become dead letters `route_failed`; the others are delivered."""
    runtime, batch_id = landed(site, *poisoned(order, 30, 7, 23))

    handed_out = route(runtime, batch_id, Watched(runtime))
    finish(runtime, batch_id)

    good = [str(number) for number in range(30) if number not in (7, 23)]
    records = list(dead_letters(runtime, whole=True))
    assert handed_out == [0]
    assert routed_ids(runtime, batch_id) == good
    assert [(row["event_id"], row["reason"], row["delivery_id"], row["rule"]) for row in records] == [
        ("7", "route_failed", None, None),
        ("23", "route_failed", None, None),
    ]
    assert RAISING in records[0]["event"]
    assert "RuntimeError: poisoned" in records[0]["detail"]
    assert subject_of(records[0]) == "orders/placed/1/7"
    assert audit(runtime).differences == ()


def test_half_a_surrogate_pair_in_an_error_is_replaced(site: Any, order: Order) -> None:
    """Half a surrogate pair in an exception that quotes an event is replaced, because ledger and store reject it."""
    runtime, batch_id = landed(site, order(1))

    def failing(store: Store, rule_set: RuleSet, job: RouteJob, task: Task) -> SliceResult:
        if job.bus == "orders":
            raise RuntimeError("no \ud800")
        return route_task(store, rule_set, job, task)

    route(runtime, batch_id, InProcessRouter(runtime.store, failing))
    finish(runtime, batch_id)

    (record,) = dead_letters(runtime)
    assert record["detail"].endswith("RuntimeError: no ?")


def test_slices_that_fail_are_tried_alone_and_others_once(
    site: Any, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice next to a poisoned one is routed once more and not split; what is recorded is not tried again."""
    monkeypatch.setattr(route_module, "ROW_GROUP_ROWS", 10)
    runtime, batch_id = landed(site, *poisoned(order, 30, 15))
    router = Watched(runtime)

    route(runtime, batch_id, router)

    files = {file.key.rpartition("/")[2]: file for file in runtime.ledger.files.list_for_batch(batch_id, "delivery")}
    split = [name for name, file in files.items() if isinstance(file.detail, SplitSlice)]
    assert split == ["000010", "000014-000016"]
    assert [name for name, file in files.items() if isinstance(file.detail, UnroutableEvent)] == ["000015-000016"]
    assert len(router.asked[0]) == 3
    assert all(len(asked) == 1 for asked in router.asked[1:])
    tried = [name.rpartition("/")[2] for asked in router.asked[1:] for name in asked if name != "canary"]
    assert tried.count("000000") == 0
    assert tried.count("000020") == 1
    assert tried.count("000015-000016") == 2


@pytest.mark.parametrize("jobs", range(1, 20))
def test_a_canary_that_fails_blames_no_event(site: Any, order: Order, jobs: int) -> None:
    """Whenever Spark goes, the stage fails, no event is dead-lettered for it, and the next try ends the same."""
    runtime, batch_id = landed(site, *poisoned(order, 30, 7))
    with pytest.raises(SparkError):
        route(runtime, batch_id, Watched(runtime, jobs))
    assert runtime.ledger.batches.get(batch_id).state == "buffered"
    recorded = {file.key for file in runtime.ledger.files.list_for_batch(batch_id, "delivery")}
    tries = {name: count for name, count in runtime.ledger.route_tries.counts(batch_id).items() if name not in recorded}
    assert sorted(tries.values()) in ([], [1], [2])

    route(runtime, batch_id, Watched(runtime))
    finish(runtime, batch_id)

    assert routed_ids(runtime, batch_id) == [str(number) for number in range(30) if number != 7]
    assert [row["event_id"] for row in dead_letters(runtime)] == ["7"]


def test_without_spark_nothing_is_counted(site: Any, order: Order) -> None:
    """If Spark ends with the first job, the stage fails any number of times, and only the first try counts."""
    runtime, batch_id = landed(site, order(1), order(2))

    for _ in range(5):
        with pytest.raises(SparkError, match="Spark is gone"):
            route(runtime, batch_id, Watched(runtime, 0))

    assert runtime.ledger.route_tries.counts(batch_id) == {"": 1}
    assert runtime.ledger.files.list_for_batch(batch_id, "delivery") == []


def test_a_file_that_cannot_be_read_is_no_events_fault(site: Any, order: Order) -> None:
    """A missing buffer file fails the stage any number of times, and none of its events is dead-lettered."""
    runtime, batch_id = landed(site, order(1), order(2))
    (file,) = runtime.ledger.files.list_for_batch(batch_id, "buffer")
    runtime.store.delete(file.path or "")

    class Spark(Watched):
        def route_slices(self, job: RouteJob, slices: Sequence[Task]) -> Iterator[SliceResult]:
            try:
                yield from super().route_slices(job, slices)
            except StoreError as error:  # as a worker returns it
                raise SparkError(str(error)) from error

    for _ in range(4):
        with pytest.raises(StoreError):
            route(runtime, batch_id, Spark(runtime))

    assert runtime.ledger.route_tries.counts(batch_id) == {}
    assert runtime.ledger.files.list_for_batch(batch_id, "delivery") == []


def test_tries_without_a_result_count(site: Any, order: Order) -> None:
    """A slice whose tries killed the counting process is split, and its event is dead-lettered."""
    runtime, batch_id = landed(site, *poisoned(order, 3, 1))
    piece = runtime.ledger.files.list_for_batch(batch_id, "buffer")[0].key + "/000000"
    for _ in range(2):
        runtime.ledger.route_tries.begin(batch_id, piece)
    router = Watched(runtime)

    route(runtime, batch_id, router)

    assert [piece] not in router.asked
    assert routed_ids(runtime, batch_id) == ["0", "2"]


def test_three_jobs_that_end_their_process_are_the_last(site: Any, order: Order) -> None:
    """After three whole jobs without a result slices are tried one at a time."""
    runtime, batch_id = landed(site, order(1), order(2))
    for _ in range(3):
        runtime.ledger.route_tries.begin(batch_id, "")
    router = Watched(runtime)

    route(runtime, batch_id, router)

    assert router.asked == [["canary"], [runtime.ledger.files.list_for_batch(batch_id, "buffer")[0].key + "/000000"]]
    assert routed_ids(runtime, batch_id) == ["1", "2"]


def test_two_that_split_the_same_slice_have_one_outcome(site: Any, order: Order) -> None:
    """If another route records the whole slice while this one splits it, that result counts and nothing is repeated."""
    runtime, batch_id = landed(site, *poisoned(order, 8, 2))

    class Overtaken(Watched):
        def route_slices(self, job: RouteJob, slices: Sequence[Task]) -> Iterator[SliceResult]:
            for result in super().route_slices(job, slices):
                if result.slice_id.endswith("000003-000004"):
                    route(runtime, batch_id, Watched(runtime))
                yield result

    route(runtime, batch_id, Overtaken(runtime))

    assert routed_ids(runtime, batch_id) == [str(number) for number in range(8) if number != 2]
    assert runtime.ledger.batches.get(batch_id).state == "routed"


class Mortal(Watched):
    """A router whose Spark ends, with all its workers, at a poisoned event; `restart` starts Spark again."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._runtime = runtime
        self.dead = False
        self.deaths = 0

    def route_slices(self, job: RouteJob, slices: Sequence[Task]) -> Iterator[SliceResult]:
        try:
            if not self.dead:
                yield from super().route_slices(job, slices)
                return
        except SparkError:
            self.dead = True
            self.deaths += 1
        raise SparkError("Spark does not respond")

    def restart(self) -> None:
        """Start Spark again."""
        self.dead = False


def route_until_done(runtime: Runtime, batch_id: str, router: Mortal) -> None:
    """Repeat route with a restarted Spark until it succeeds; one try in between has no Spark."""
    for _ in range(50):
        for started in (True, False):
            router.dead = not started
            with suppress(SparkError):
                route(runtime, batch_id, router)
            if runtime.ledger.batches.get(batch_id).state == "routed":
                return


def test_an_event_that_ends_spark_itself_is_a_dead_letter(site: Any, order: Order) -> None:
    """If Spark ends with an event each time, its slice is eventually split and the event is dead-lettered."""
    runtime, batch_id = landed(site, *poisoned(order, 30, 7))
    router = Mortal(runtime)

    route_until_done(runtime, batch_id, router)
    finish(runtime, batch_id)

    assert routed_ids(runtime, batch_id) == [str(number) for number in range(30) if number != 7]
    ((event_id, detail),) = [(row["event_id"], row["detail"]) for row in dead_letters(runtime)]
    assert event_id == "7"
    assert "a Spark server that worked beforehand" in detail
    assert router.deaths == 3 + 1 + 1 + 3  # together, thirty events, four, the single one
    assert audit(runtime).differences == ()


def test_a_spark_that_is_killed_now_and_then_costs_no_event(site: Any, order: Order) -> None:
    """If Spark is killed twice by chance while one event is tried, the event is still routed."""
    runtime, batch_id = landed(site, order(1))
    piece = runtime.ledger.files.list_for_batch(batch_id, "buffer")[0].key + "/000000"
    for _ in range(2):
        runtime.ledger.route_tries.begin(batch_id, piece)
    router = Watched(runtime)

    route(runtime, batch_id, router)

    assert router.asked == [["canary"], ["canary"], [piece]]
    assert routed_ids(runtime, batch_id) == ["1"]
