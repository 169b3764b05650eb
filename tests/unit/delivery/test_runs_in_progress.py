"""A poll of a push's runs covers those in progress, and there are as many threads as there is work."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from unit.delivery.test_unjudged_deliveries import items

from eventbridge.delivery.admission import Pace, RunBreaker
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.push import BegunRuns, RunsInProgress
from eventbridge.delivery.rows import OutcomeRows
from eventbridge.delivery.run import RunSettings, TargetRun
from eventbridge.delivery.threads import Threads
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.stop import Stop
from eventbridge.testing.targets import InMemoryTarget, accept

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def _run(target: str) -> TargetRun:
    settings = RunSettings(
        "orders",
        target,
        open_target=lambda: InMemoryTarget(accept, clock=lambda: NOW),
        policy=RetryPolicy(maximum_event_age_seconds=1e9),
        breaker=RunBreaker("orders", target),
        pace=Pace(lambda _rate, _wanted: NotImplemented, None),
        until=NOW + timedelta(seconds=10),
        clock=lambda: NOW,
        stop=Stop(),
        rows=OutcomeRows(1_000),
    )
    return TargetRun(settings, SingleDeliveries(items(2)))


def test_a_run_is_seen_from_its_begin_until_once_after_its_end() -> None:
    """So the ledger gets every attempt, and thousands of resting runs are not asked."""
    runs = [_run("a"), _run("b"), _run("c")]
    in_progress = RunsInProgress(BegunRuns(runs))

    assert in_progress.poll() == []
    runs[1].progress.begin()
    runs[2].run()
    assert in_progress.poll() == [runs[1], runs[2]]
    assert in_progress.poll() == [runs[1]]
    runs[1].progress.ended_at = NOW
    assert in_progress.poll() == [runs[1]]
    assert in_progress.poll() == []


def test_many_short_jobs_are_done_by_as_few_threads_as_there_are_places() -> None:
    """A thread for each of ten thousand files took as long to start as the work of most of them."""
    threads = Threads("test", 3)
    done: list[threading.Thread] = []
    over = threading.Event()

    def job() -> None:
        done.append(threading.current_thread())
        if len(done) == 500:
            over.set()

    threads.add_all([job] * 500)

    assert over.wait(30)
    assert len(set(done)) <= 3
