"""The parts of `make bench-match` that need neither a JVM nor Spark, at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.match.kernel import KernelSubject
from benchmarks.match.whole_route import RouteSubject
from benchmarks.match.worker import WorkerSubject, fresh_worker
from benchmarks.match.workload import Scale, Workload

EVENTS = 3_000


@pytest.fixture
def work(tmp_path: Path) -> Workload:
    """A small workload."""
    return Workload(tmp_path, Scale(events={519: EVENTS, 4096: 500}, rules=(100,)))


def test_every_event_is_matched_once(work: Workload) -> None:
    """Both files of a round are read once, however much time is left; without time it is one batch."""
    kernel = KernelSubject()
    kernel.compile("mixed", work.rules("mixed", 100))
    kernel.events("519", work.events(519, 0))

    found = kernel.measure("mixed", "519", 60)

    assert found.events == 2 * EVENTS
    assert found.bytes == pytest.approx(519 * 2 * EVENTS, rel=0.01)
    assert kernel.measure("mixed", "519", 1e-9).events == 2 * EVENTS, "20,000 at a time"
    assert kernel.differences("mixed", "519", 50, 100)[2] == 0
    assert found.matches == sum(kernel.counts("mixed", "519", 2 * EVENTS))


def test_route_delivers_what_the_kernel_matches(work: Workload) -> None:
    """The rows of the delivery files are the matches of the events that were routed; few may be asked for."""
    route, kernel = RouteSubject(work.folder / "store"), KernelSubject()
    for subject in (route, kernel):
        subject.compile("mixed", work.rules("mixed", 100))
    route.events("519", work.events(519, 0)[0], EVENTS)
    kernel.events("519", work.events(519, 0))

    for count in (EVENTS, 1_000):
        assert route.measure("mixed", "519", count).matches == sum(kernel.counts("mixed", "519", count)) > 0


def test_a_worker_takes_a_rule_set_and_its_change(work: Workload) -> None:
    """Both are read as frozen and matched with; 100 rules of the changed one are others."""
    route = RouteSubject(work.folder / "store")
    uri, whole = route.compile("worker", work.rules("mixed", 300))
    _, changed = route.compile("changed", work.changed_rules(300))
    worker = WorkerSubject(uri)

    seconds = worker.take(whole), worker.take(changed)
    found = worker.match(work.events(519, 0)[0])

    texts = [work.rules("mixed", 300).read_text().splitlines(), work.changed_rules(300).read_text().splitlines()]
    assert sum(old != new for old, new in zip(*texts, strict=True)) == 100
    assert whole != changed
    assert min(seconds) > 0
    assert (found.events, found.matches > 0) == (EVENTS, True)


def test_a_fresh_worker_routes_a_slice(work: Workload) -> None:
    """It ends well, and has taken less time than what it is forked from took to load."""
    route = RouteSubject(work.folder / "store")
    route.compile("mixed", work.rules("mixed", 100))
    route.events("519", work.events(519, 0)[0], EVENTS)

    took = fresh_worker(route.asked("mixed", "519", EVENTS))

    assert 0 < took.cpu_seconds < took.forked_from
    assert took.seconds > 0
