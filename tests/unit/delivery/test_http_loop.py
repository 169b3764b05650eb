"""The loop that runs http targets returns as soon as its caller has something to do."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from unit.delivery.test_engine import engine_of

from eventbridge.delivery.admission import Pace, RunBreaker
from eventbridge.delivery.http_loop import HttpLoop
from eventbridge.delivery.live import LiveDeliveries, LiveQueue
from eventbridge.delivery.outstanding import ReadPiece
from eventbridge.delivery.rows import OutcomeRows
from eventbridge.delivery.run import RunSettings, TargetRun
from eventbridge.delivery.threads import Threads
from eventbridge.model import rowset
from eventbridge.model.chunk import Piece
from eventbridge.policy.rate_limit import Lease
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.targets.http.access import Access
from eventbridge.targets.http.credentials import Credentials
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.target import HttpTarget
from eventbridge.targets.ssrf_guard import SsrfGuard


def now() -> datetime:
    return datetime.now(UTC)


def no_lease(_rate: float, _wanted: int) -> Lease:
    raise AssertionError("there is no rate")


def target() -> HttpTarget:
    """Return a target that gets no requests."""
    access = Access(Credentials, lambda _client, _seconds: pytest.fail("it has no token"), now)
    return HttpTarget(
        Endpoint("http://127.0.0.1:1/", 1.0, True, SsrfGuard(())), max_in_flight=1, access=access, clock=now
    )


def over(queue: LiveQueue) -> TargetRun:
    """Return a live run whose budget is spent."""
    settings = RunSettings(
        "orders",
        "crm",
        open_target=target,
        policy=RetryPolicy(),
        breaker=RunBreaker("orders", "crm"),
        pace=Pace(no_lease, None),
        until=now(),
        clock=now,
        stop=Stop(),
        rows=OutcomeRows(1_000),
        uses_transfer_slot=True,
    )
    return TargetRun(settings, LiveDeliveries(queue, None), queue)


@pytest.mark.parametrize("count", [0, 1])
def test_a_live_run_that_ends_with_something_left_ends_the_turn(count: int, runtime: Runtime) -> None:
    """The next run needs it, and would begin only after the turn; a run that leaves nothing does not end the turn."""
    loop, queue = HttpLoop([], Threads("test", 1)), LiveQueue()
    for _ in range(count):
        piece = Piece("", rowset.run(0, 0), 1, 2, "orders", "crm")
        queue.put(ReadPiece(piece, 1, 0, pa.table, list))
    run, engine = over(queue), engine_of(runtime, loop)
    engine.start([run])

    has_left = engine.work_for(5.0 if count else 0.5)

    assert (run.has_ended, run.report.crashed, has_left, bool(queue)) == (True, None, bool(count), bool(count))
    loop.close()
