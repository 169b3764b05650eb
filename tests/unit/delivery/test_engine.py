"""The engine reports the attempts of every run that began, and wakes its caller when the last run has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from unit.delivery.test_unjudged_deliveries import items, now

from eventbridge.delivery.admission import Pace, RunBreaker
from eventbridge.delivery.engine import TargetRuns
from eventbridge.delivery.http_loop import HttpLoop
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.rows import OutcomeRows
from eventbridge.delivery.run import RunSettings, TargetRun
from eventbridge.delivery.threads import Threads
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.model.outcome import Response
from eventbridge.policy.breaker import Tally
from eventbridge.policy.rate_limit import Lease
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.targets.protocol import Request
from eventbridge.testing.targets import InMemoryTarget, accept


def engine_of(runtime: Runtime, loop: HttpLoop | None = None) -> TargetRuns:
    batch = Batch(new_batch_id(now()), "normal", "orders", "orders", "routed", "cafe", now())
    return TargetRuns(runtime, batch, Stop(), Threads("test", 8), loop)


def _no_lease(_rate: float, _wanted: int) -> Lease:
    raise AssertionError("there is no rate")


def run_of(name: str, target: InMemoryTarget, count: int = 2) -> TargetRun:
    settings = RunSettings(
        "orders",
        name,
        open_target=lambda: target,
        policy=RetryPolicy(maximum_event_age_seconds=1e9),
        breaker=RunBreaker("orders", name),
        pace=Pace(_no_lease, None),
        until=now() + timedelta(seconds=30),
        clock=now,
        stop=Stop(),
        rows=OutcomeRows(1_000),
    )
    return TargetRun(settings, SingleDeliveries(items(count)))


class Held(InMemoryTarget):
    """A target that responds once it is `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()
        super().__init__(self._respond)

    def _respond(self, request: Request) -> Response | None:
        assert self.released.wait(30)
        return accept(request)


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        threading.Event().wait(0.001)


def until_ended(run: TargetRun) -> None:
    until(lambda: run.has_ended)


def test_attempts_are_reported_whether_a_run_goes_on_or_has_ended_since(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the ledger gets every attempt, and only once."""
    reported: list[tuple[str, int]] = []

    def record(tallies: Sequence[Tally]) -> None:
        reported.extend((each.target, sum(count.attempts for count in each.counts.values())) for each in tallies)

    monkeypatch.setattr(runtime.ledger.targets, "record_attempts", record)
    engine, held = engine_of(runtime), Held()
    quick, slow = run_of("quick", InMemoryTarget(), 5), run_of("slow", held)
    engine.start([slow, quick])
    until_ended(quick)
    until(lambda: engine.poll() or reported)
    assert reported == [("quick", 5)]

    held.released.set()
    until_ended(slow)
    until(lambda: engine.poll() or len(reported) > 1)
    assert reported == [("quick", 5), ("slow", 2)]
    assert list(engine.take_ended()) == [quick, slow]
    assert list(engine.take_ended()) == []


def test_the_last_run_that_ends_wakes_the_caller(runtime: Runtime) -> None:
    """Earlier ones do not, because thousands may end one by one."""
    engine, held = engine_of(runtime), Held()
    runs = [run_of("quick", InMemoryTarget()), run_of("slow", held)]
    engine.start(runs)
    until_ended(runs[0])
    began = time.monotonic()
    engine.work_for(0.2)
    assert time.monotonic() - began >= 0.2
    assert engine.is_busy

    held.released.set()
    engine.work_for(30)
    assert time.monotonic() - began < 20
    assert not engine.is_busy


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
