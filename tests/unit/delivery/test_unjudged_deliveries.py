"""A run whose target leaves deliveries unjudged, as a batch request may: they are sent again, and count once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from eventbridge.delivery.admission import Pace, RunBreaker
from eventbridge.delivery.outstanding import Item
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.rows import OutcomeRows
from eventbridge.delivery.run import RunSettings, TargetRun
from eventbridge.model.outcome import Response
from eventbridge.policy.rate_limit import Bucket, Lease
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.stop import Stop
from eventbridge.targets.protocol import Request
from eventbridge.testing.targets import InMemoryTarget, accept


def now() -> datetime:
    return datetime.now(UTC)


def items(count: int) -> list[Item]:
    """Return deliveries of which payload number n is `n`."""
    requests = [Request(n, f"id {n}", str(n).encode(), "application/json") for n in range(count)]
    return [Item(request.payload, "orders", "crm", request, now(), 0, 0.0) for request in requests]


def run_of(target: InMemoryTarget, deliveries: Sequence[Item], pace: Pace, stop: Stop) -> TargetRun:
    settings = RunSettings(
        "orders",
        "crm",
        open_target=lambda: target,
        policy=RetryPolicy(),
        breaker=RunBreaker("orders", "crm"),
        pace=pace,
        until=now() + timedelta(seconds=60),
        clock=now,
        stop=stop,
        rows=OutcomeRows(1_000),
    )
    run = TargetRun(settings, SingleDeliveries(deliveries))
    run.run()
    assert run.report.crashed is None
    return run


def _no_lease(_rate: float, _wanted: int) -> Lease:
    raise AssertionError("there is no rate")


def test_they_are_sent_until_they_are_judged_and_count_as_one() -> None:
    """Each is judged at its third sending, and the push reports every delivery as sent once."""
    seen: Counter[int] = Counter()

    def response(request: Request) -> Response | None:
        seen[request.index] += 1
        return None if request.index % 3 == 0 and seen[request.index] < 3 else accept(request)

    deliveries = items(20)
    run = run_of(InMemoryTarget(response), deliveries, Pace(_no_lease, None), Stop())

    assert {index: times for index, times in seen.items() if times > 1} == dict.fromkeys(range(0, 20, 3), 3)
    assert (run.report.delivered, run.report.sent, run.report.settled) == (20, 20, 20)
    assert {item.attempts for item in deliveries} == {1}


def test_each_sending_takes_a_token() -> None:
    """The rate limits what goes out."""
    leased: list[int] = []
    seen: Counter[int] = Counter()

    def lease(_rate: float, wanted: int) -> Lease:
        leased.append(wanted)
        return Lease(wanted, 0.0, Bucket(0.0, now()))

    def response(request: Request) -> Response | None:
        seen[request.index] += 1
        return None if seen[request.index] < 2 else accept(request)

    run = run_of(InMemoryTarget(response), items(4), Pace(lease, 1_000.0), Stop())

    assert run.report.delivered == 4
    assert sum(leased) == 8


def test_when_the_push_is_stopped_they_are_recorded_as_sent() -> None:
    """They may have arrived, so each waits for its timeout; what was not sent has no attempt."""
    stop = Stop()

    def response(request: Request) -> Response | None:
        if request.index == 3:
            stop.set()
        return None if request.index == 1 else accept(request)

    deliveries = items(6)
    run = run_of(InMemoryTarget(response), deliveries, Pace(_no_lease, None), stop)

    assert run.report.delivered == 3
    assert [item.attempts for item in deliveries] == [1, 1, 1, 1, 0, 0]
    [sent] = [row for row in run.settings.rows.take()[1] if row.outcome != "delivered"]
    assert (sent.delivery_id, sent.outcome, sent.sent, sent.reason) == (b"1", "retry_scheduled", True, "Interrupted")
    assert sent.due_at is not None
    assert sent.due_at - sent.started_at == timedelta(seconds=10)


class Together(InMemoryTarget):
    """Has one response for three requests."""

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Take three and then yield what their response comes to."""
        taken = iter(requests)
        while three := list(islice(taken, 3)):
            responses = list(super().deliver(three, until))
            for number, responded in enumerate(responses, start=1):
                self.more_of_response = len(responses) - number
                yield responded


@pytest.mark.parametrize("reason", ["stop", "gone"])
def test_a_response_that_has_come_is_taken_whole(reason: str) -> None:
    """Also if the push is stopped meanwhile, or one of its deliveries gets a 410."""
    stop = Stop()

    def response(request: Request) -> Response:
        if request.index == 3 and reason == "gone":
            return accept(request)._replace(accepted=False, code=410)
        if request.index == 3:
            stop.set()
        return accept(request)

    run = run_of(Together(response), items(12), Pace(_no_lease, None), stop)

    assert run.report.settled == 6
