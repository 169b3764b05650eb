"""A target is not judged by a push that sent it nothing, or that had little of the budget left for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from unit.delivery.test_unjudged_deliveries import items

from eventbridge.delivery.admission import Pace, RunBreaker
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.rows import OutcomeRows
from eventbridge.delivery.run import RunSettings, TargetRun
from eventbridge.model.outcome import Response
from eventbridge.model.rule_state import TargetStatus
from eventbridge.policy.breaker import Count, Ended, Tally, next_status
from eventbridge.policy.rate_limit import Lease
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.stop import Stop
from eventbridge.targets.protocol import Request
from eventbridge.testing.targets import InMemoryTarget, accept

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OK = TargetStatus("orders", "crm", "ok", "", NOW - timedelta(hours=1))


def _no_lease(_rate: float, _wanted: int) -> Lease:
    raise AssertionError("there is no rate")


def _standing(began_after: float, took_seconds: float = 11.0) -> TargetStatus:
    """Return how a target stands after a run that began so many seconds into a budget of ten, and met its end.

    Its one response took so many seconds.
    """
    passed = timedelta()

    def clock() -> datetime:
        return NOW + passed

    def response(request: Request) -> Response:
        nonlocal passed
        passed = timedelta(seconds=11)
        return accept(request)._replace(duration_ms=took_seconds * 1000)

    settings = RunSettings(
        "orders",
        "crm",
        open_target=lambda: InMemoryTarget(response, clock=clock),
        policy=RetryPolicy(maximum_event_age_seconds=1e9),
        breaker=RunBreaker("orders", "crm"),
        pace=Pace(_no_lease, None),
        until=NOW + timedelta(seconds=10),
        clock=clock,
        stop=Stop(),
        rows=OutcomeRows(1_000),
    )
    run = TargetRun(settings, SingleDeliveries(items(10)))
    passed = timedelta(seconds=began_after)
    run.run()
    assert run.report.crashed is None
    notified = run.tally()
    assert notified is not None
    return next_status(OK, notified, Count(), clock())


def test_one_whose_turn_came_after_the_budget_stays_as_it_was() -> None:
    """It was not contacted."""
    assert _standing(began_after=10.5) == OK


def test_one_whose_turn_came_late_is_not_judged_by_what_was_left() -> None:
    """One of ten in the last second means nothing; in the whole budget it does."""
    assert _standing(began_after=9).state == "ok"
    assert _standing(began_after=0).state == "degraded"


def test_a_target_is_not_judged_by_what_this_process_took() -> None:
    """One of ten was settled in the whole budget; its response came in less than half of that, so it was not slow."""
    assert _standing(began_after=0, took_seconds=4.9).state == "ok"
    assert _standing(began_after=0, took_seconds=5.1).state == "degraded"


def test_an_uncontacted_target_stays_slow_and_may_be_probed_next() -> None:
    """Its count of quick chunks stays; a target that was to be probed may be probed at once."""
    untried = Tally("orders", "crm", ended=Ended(0, 10, 0, True, apart=True, contacted=False))
    slow = TargetStatus("orders", "crm", "degraded", "batches waited", NOW, until=NOW, good=3, slow=True)
    half_open = TargetStatus("orders", "crm", "half-open", "", NOW, until=NOW + timedelta(seconds=20), good=1)

    assert not untried.is_word_against
    assert next_status(slow, untried, Count(), NOW) == slow
    assert next_status(half_open, untried, Count(), NOW).until == NOW
