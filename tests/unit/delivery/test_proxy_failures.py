"""What a run does after the failures of an egress proxy, which say nothing about its target."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eventbridge.delivery.admission import Pace, RunBreaker
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.rows import OutcomeRows
from eventbridge.delivery.run import JitterSample, RunSettings, TargetRun
from eventbridge.model.outcome import PROXY_FAILED, Response
from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.rate_limit import Lease
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.stop import Stop
from eventbridge.testing.targets import InMemoryTarget, accept

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def _no_lease(_rate: float, _wanted: int) -> Lease:
    raise AssertionError("there is no rate")


def _run(breaker: RunBreaker) -> TargetRun:
    settings = RunSettings(
        "orders",
        "crm",
        open_target=lambda: InMemoryTarget(accept),
        policy=RetryPolicy(),
        breaker=breaker,
        pace=Pace(_no_lease, None),
        until=NOW + timedelta(seconds=60),
        clock=lambda: NOW,
        stop=Stop(),
        rows=OutcomeRows(1_000),
    )
    return TargetRun(settings, SingleDeliveries([]))


def test_a_probe_that_is_not_tried_again_because_of_the_proxy_counts_by_its_earlier_response() -> None:
    """Otherwise the breaker would wait for its result, and the run could send nothing until its budget ends."""
    run = _run(RunBreaker("orders", "crm", probed=TargetStatus("orders", "crm", "degraded", "10 of 10", NOW)))
    failed = Response(False, NOW, 1.0, code=503)
    by_proxy = Response(False, NOW, 1.0, error_class=PROXY_FAILED, error="responded to CONNECT with 502")

    run.judge(b"1", failed, attempts=1, at=JitterSample(NOW, 0.5), again=True)
    assert not run.breaker.tripped
    run.judge(b"1", by_proxy, attempts=2, at=JitterSample(NOW, 0.5), again=False)

    assert run.breaker.tripped
    notified = run.tally()
    assert notified is not None
    assert (notified.probes, notified.total.failed) == ((False,), 1)


def test_a_proxy_that_hangs_ends_only_a_run_that_others_wait_for() -> None:
    """A run in the slow lane keeps nobody waiting; the target itself is not slow."""
    hung = Response(False, NOW, 10_000.0, error_class=PROXY_FAILED, error="timed out")
    for judges_speed in (True, False):
        run = _run(RunBreaker("orders", "crm", judges_speed=judges_speed))
        run.note_duration(hung)
        assert run.is_closed is judges_speed
        assert not run.breaker.too_slow
        assert run.report.slow == 0
