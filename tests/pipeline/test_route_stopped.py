"""If the stage route is stopped, killed or run twice, finished work is kept, and the next try does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pipeline.routing import buffered, deliveries, routed, wanted

from eventbridge.errors import InfrastructureError, SparkError
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.route.stage import route, slices_of
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.job import RouteJob, Slice, SliceResult, Task
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.rule_sets import frozen_rules

Order = Callable[..., bytes]


def test_slices_cover_every_row_once(site: Any, order: Order, small_slices: None) -> None:
    """Slices begin at row groups, cover each file, and are the same in every try."""
    site.publish(*[order(number) for number in range(9)], key="one partition")
    runtime, batch_id = buffered(site, buffer_range_events=5)
    files = runtime.ledger.files.list_for_batch(batch_id, "buffer")

    slices = slices_of(files)

    assert slices == slices_of(files)
    assert [(piece.row_from, piece.row_to) for piece in slices] == [(0, 4), (4, 5), (0, 4)]
    assert len({piece.slice_id for piece in slices}) == 3


class Stopping:
    """A router whose Spark ends after some slices, and that records its first request."""

    def __init__(self, runtime: Runtime, after: int) -> None:
        self._inner = InProcessRouter(runtime.store)
        self._left = after
        self.asked: list[str] = []

    def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        self.asked = self.asked or [piece.slice_id for piece in slices]
        for result in self._inner.route_slices(job, slices):
            if self._left == 0:
                raise SparkError("Spark is gone")
            self._left -= 1
            yield result


def test_a_failure_keeps_the_finished_slices(site: Any, order: Order, small_slices: None) -> None:
    """Route fails with an error and commits nothing; the next try routes only the missing slices."""
    site.publish(*[order(number, 500) for number in range(8)], key="one partition")
    runtime, batch_id = buffered(site)
    with pytest.raises(SparkError, match="Spark is gone"):
        route(runtime, batch_id, Stopping(runtime, after=3))
    assert runtime.ledger.batches.get(batch_id).state == "buffered"
    kept = runtime.ledger.files.list_for_batch(batch_id, "delivery")
    assert len(kept) == 3

    second = Stopping(runtime, after=100)
    route(runtime, batch_id, second)

    assert len(second.asked) == 1
    assert runtime.ledger.files.list_for_batch(batch_id, "delivery")[:3] == kept
    assert wanted(deliveries(runtime, batch_id)).total() == 24


def test_a_slice_without_a_response_is_noticed(site: Any, order: Order, small_slices: None) -> None:
    """A batch is not routed if its router returns fewer slices than requested."""

    class Lazy:
        def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
            return InProcessRouter(runtime.store).route_slices(job, slices[1:])

    site.publish(*[order(number) for number in range(6)], key="one partition")
    runtime, batch_id = buffered(site)

    with pytest.raises(SparkError, match="1 of 3 slices"):
        route(runtime, batch_id, Lazy())
    assert runtime.ledger.batches.get(batch_id).state == "buffered"


def test_a_spent_budget_keeps_what_is_recorded(site: Any, order: Order, small_slices: None) -> None:
    """When the prepare budget is spent, route says so; every try records at least one slice."""
    site.publish(*[order(number) for number in range(6)], key="one partition")
    runtime, batch_id = buffered(site)
    start = runtime.clock()
    ticks = iter(range(1_000))
    slow = replace(runtime, clock=lambda: start + timedelta(hours=next(ticks)))

    for tried in (1, 2):
        with pytest.raises(InfrastructureError, match="EVENTBRIDGE_PREPARE_TIMEOUT"):
            routed(slow, batch_id)
        assert len(runtime.ledger.files.list_for_batch(batch_id, "delivery")) == tried
    routed(slow, batch_id)

    assert runtime.ledger.batches.get(batch_id).state == "routed"


def test_two_at_once_publish_one_batch(site: Any, order: Order, small_slices: None) -> None:
    """Two tries may both route; one file per slice is recorded and one set of chunks is published."""
    site.publish(*[order(number, 500) for number in range(10)])
    _, batch_id = buffered(site)
    works = [site.reopen() for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        responses = list(pool.map(lambda runtime: routed(runtime, batch_id), works))

    assert responses == [[0, 1]] * 3
    rows = deliveries(site.runtime, batch_id)
    assert len({row["delivery_id"] for row in rows}) == len(rows) == 30
    assert sum(chunk.rows for chunk in site.runtime.ledger.chunks.list_for_batch(batch_id)) == 30


def test_it_may_die_anywhere(
    site: Any, order: Order, dying_everywhere: Callable[..., Iterator[Any]], small_slices: None
) -> None:
    """Wherever route dies, the next try ends with the same deliveries, each once, and every one in one chunk."""
    site.publish(order(1, 500), order(2, 5), order(3, 500, data={"amount": 500}), b"bad", order(1, 500), key="k")
    runtime, batch_id = buffered(site)
    reference = site.copy(site.folder.parent / "reference")
    routed(reference.runtime, batch_id)
    expected = wanted(deliveries(reference.runtime, batch_id))
    reference.close()

    def stage(runtime: Runtime) -> list[int]:
        return routed(runtime, batch_id)

    for wreck in dying_everywhere(site, stage):
        runtime = wreck.reopen()
        handed_out = stage(runtime)
        rows = deliveries(runtime, batch_id)

        assert wanted(rows) == expected
        assert len({row["delivery_id"] for row in rows}) == len(rows) == 7
        assert handed_out == [0, 1]
        assert sum(chunk.rows for chunk in runtime.ledger.chunks.list_for_batch(batch_id)) == 6


class Twice(InProcessRouter):
    """A router that runs every task twice concurrently, like Spark's speculation, and returns those in `chosen`."""

    def __init__(self, runtime: Runtime, chosen: slice) -> None:
        super().__init__(runtime.store)
        self._chosen = chosen

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        rules = frozen_rules(self._store, job.rule_set)
        with ThreadPoolExecutor(2) as pool:
            for task in tasks:
                copies = [pool.submit(self._result, rules, job, task) for _ in range(2)]
                yield from [copy.result() for copy in copies][self._chosen]


@pytest.mark.parametrize(
    "chosen", [slice(0, 1), slice(1, 2), slice(0, 2)], ids=["the first counts", "the copy counts", "both come back"]
)
def test_tasks_that_run_twice_at_once_leave_no_duplicate(
    site: Any, order: Order, small_slices: None, chosen: slice
) -> None:
    """Both copies of a task write, but the ledger names one file per slice, each delivery exists once, and all is
    reconciled.
    """
    site.publish(*[order(number, 500) for number in range(9)], key="k")
    runtime, batch_id = buffered(site)

    route(runtime, batch_id, Twice(runtime, chosen))
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)

    rows = deliveries(runtime, batch_id)
    named = {file.path for file in runtime.ledger.files.list_for_batch(batch_id, "delivery")}
    written = set(runtime.store.list("deliveries/"))
    assert len({row["delivery_id"] for row in rows}) == len(rows) == 27
    assert named < written
    assert len(written) == 2 * len(named)
    assert commit(runtime, batch_id)
    assert audit(runtime).differences == ()
