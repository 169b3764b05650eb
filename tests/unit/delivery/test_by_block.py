"""A run of blocks: its rows, and deliveries that go one by one because of the target or of their age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from eventbridge.delivery.admission import Pace, RunBreaker
from eventbridge.delivery.by_block import Block, BlockDeliveries, blocks_of
from eventbridge.delivery.outstanding import ItemValues, ReadPiece, items_of
from eventbridge.delivery.per_delivery import SingleDeliveries
from eventbridge.delivery.rows import OutcomeRows, outcome_table
from eventbridge.delivery.run import RunSettings, TargetRun
from eventbridge.model.chunk import Piece
from eventbridge.model.outcome import Response
from eventbridge.policy.rate_limit import Lease
from eventbridge.rules.model import RetryPolicy
from eventbridge.runtime.stop import Stop
from eventbridge.store import schemas
from eventbridge.targets.protocol import Request, Target
from eventbridge.testing.targets import InMemoryBlockTarget, InMemoryTarget, accept

POLICY = RetryPolicy(
    policy="custom", max_retries=3, initial_delay_seconds=3600.0, multiplier=1.0, max_delay_seconds=3600.0, jitter=0.0
)
PIECE = Piece("deliveries/x", "0-99", 100, 0, "orders", "lines", attempts=2)


def now() -> datetime:
    return datetime.now(UTC)


def deliveries(count: int, **columns: Any) -> pa.Table:
    """Return rows of a delivery file: payload number n is `n`."""
    values = {
        "delivery_id": [n.to_bytes(16) for n in range(count)],
        "arrived_at": [now()] * count,
        "payload": [str(n).encode() for n in range(count)],
        "content_type": ["application/json"] * count,
        "headers": [None] * count,
        "order_key": [None] * count,
        "failure": [None] * count,
        "not_before": [None] * count,
        "published_at": [now()] * count,
    } | columns
    return pa.table([pa.array(values[name], schemas.DELIVERY.field(name).type) for name in values], list(values))


def blocks_of_rows(table: pa.Table) -> Sequence[Block] | None:
    """Return the deliveries of a piece as blocks."""
    count = table.num_rows
    return blocks_of(ReadPiece(PIECE, count, 0, lambda: table, lambda: ItemValues(table).rows(0, count)))


@dataclass
class Bench:
    """A target, and the runs that deliver to it."""

    target: Target
    rows: OutcomeRows = field(default_factory=lambda: OutcomeRows(1_000))
    stop: Stop = field(default_factory=Stop)
    clock: Callable[[], datetime] = now

    def settings(self, seconds: float = 20.0) -> RunSettings:
        return RunSettings(
            "orders",
            "lines",
            open_target=lambda: self.target,
            policy=POLICY,
            breaker=RunBreaker("orders", "lines"),
            pace=Pace(_no_lease, None),
            until=self.clock() + timedelta(seconds=seconds),
            clock=self.clock,
            stop=self.stop,
            rows=self.rows,
        )

    def run(self, table: pa.Table, seconds: float = 20.0) -> TargetRun:
        blocks = blocks_of_rows(table)
        assert blocks is not None
        run = TargetRun(self.settings(seconds), BlockDeliveries(blocks))
        run.run()
        assert run.report.crashed is None
        return run

    def written(self) -> list[dict[str, Any]]:
        """Return all rows that were put, in that order."""
        found: list[dict[str, Any]] = []
        while len(self.rows):
            tables, rows = self.rows.take()
            found += pa.concat_tables([*tables, outcome_table(rows)]).to_pylist()
        return found


def _no_lease(_rate: float, _wanted: int) -> Lease:
    raise AssertionError("there is no rate")


def numbers(requests: list[Request]) -> list[int]:
    return [int(request.payload) for request in requests]


def test_rows_are_those_of_one_by_one() -> None:
    """But for the time and the duration, which the whole block has in common."""
    table = deliveries(25)
    blocks, per_delivery = Bench(InMemoryBlockTarget()), Bench(InMemoryTarget())
    run = blocks.run(table)
    TargetRun(
        per_delivery.settings(),
        SingleDeliveries(list(items_of(ItemValues(table).rows(0, table.num_rows), PIECE, {}, 0))),
    ).run()
    own = {"started_at", "duration_ms"}
    rows = [{name: value for name, value in row.items() if name not in own} for row in blocks.written()]

    assert rows == [{name: value for name, value in row.items() if name not in own} for row in per_delivery.written()]
    assert [row["attempt"] for row in rows] == [3] * 25
    assert (run.report.total, run.report.delivered, run.report.sent) == (25, 25, 25)
    notified = run.tally()
    assert notified is not None
    assert (notified.total.attempts, notified.total.failed) == (25, 0)


def test_a_target_that_takes_no_blocks_gets_them_one_by_one() -> None:
    """The caller need not know in advance."""
    target = InMemoryTarget()
    run = Bench(target).run(deliveries(25))

    assert numbers(target.received) == list(range(25))
    assert run.report.delivered == 25


def test_a_refused_block_is_decided_one_by_one_and_the_rest_continues() -> None:
    """The refused block is retried by policy; the target gets the next blocks."""
    target = InMemoryBlockTarget(_refuse_once(at=10))
    bench = Bench(target)
    run = bench.run(deliveries(35))
    outcomes = {int.from_bytes(row["delivery_id"]): row["outcome"] for row in bench.written()}

    assert {n for n, outcome in outcomes.items() if outcome == "retry_scheduled"} == set(range(10, 20))
    assert sorted(numbers(target.received)) == [*range(10), *range(20, 35)]
    assert (run.report.delivered, run.report.retried) == (25, 10)
    assert len(outcomes) == 35


def test_lines_that_could_not_be_flushed_are_not_delivered() -> None:
    """They are tried again: each has an attempt more, and the reason."""
    target = InMemoryBlockTarget()
    target.flush_error = "the disk is gone"
    bench = Bench(target)
    bench.run(deliveries(15))

    assert {(row["outcome"], row["reason"], row["error"], row["attempt"]) for row in bench.written()} == {
        ("retry_scheduled", "FlushFailed", "the disk is gone", 3)
    }


def test_a_block_with_an_expired_delivery_is_decided_one_by_one() -> None:
    """What is too old is dead-lettered without being sent, the rest is delivered."""
    arrived = [now()] * 20
    arrived[7] -= timedelta(days=400)
    target = InMemoryBlockTarget()
    bench = Bench(target)
    run = bench.run(deliveries(20, arrived_at=arrived))

    assert sorted(numbers(target.received)) == [n for n in range(20) if n != 7]
    assert [row["reason"] for row in bench.written() if row["outcome"] == "dead_lettered"] == ["maximum_event_age"]
    assert (run.report.delivered, run.report.dead_lettered) == (19, 1)


@pytest.mark.parametrize("end", ["stop", "halt", "budget"])
def test_between_two_blocks_it_may_end(end: str) -> None:
    """Accepted deliveries have rows, the rest has none; only the end of the budget is reported as such."""
    ahead = timedelta()
    bench = Bench(InMemoryTarget(), clock=lambda: now() + ahead)

    def response(request: Request) -> Response:
        nonlocal ahead
        if request.index == 20:
            if end == "stop":
                bench.stop.set()
            elif end == "halt":
                run.halt()
            else:
                ahead = timedelta(minutes=1)
        return accept(request)

    bench.target = InMemoryBlockTarget(response, clock=bench.clock)
    blocks = blocks_of_rows(deliveries(45))
    assert blocks is not None
    run = TargetRun(bench.settings(), BlockDeliveries(blocks))
    run.run()

    assert len(bench.written()) == 30
    assert (run.report.total, run.report.settled, run.report.sent) == (45, 30, 30)
    assert run.report.spent is (end == "budget")


@pytest.mark.parametrize(
    ("takes", "enough", "each_seconds", "lasts_seconds", "flushed_at"),
    [
        (InMemoryBlockTarget, 1_000, 0.5, 0.0, [30, 45]),
        (InMemoryBlockTarget, 1_000, 0.5, 0.5, [20, 40, 45]),
        (InMemoryBlockTarget, 20, 0.0, 0.0, [20, 40, 45]),
        (InMemoryTarget, 1_000, 0.5, 0.0, [3, 6, 8]),
        (InMemoryTarget, 1_000, 0.5, 0.5, [2, 4, 6, 8]),
        (InMemoryTarget, 3, 0.0, 0.0, [3, 6, 8]),
    ],
)
def test_responses_wait_for_their_flush_until_there_are_enough_or_a_second_is_over(
    takes: type[InMemoryTarget], enough: int, each_seconds: float, lasts_seconds: float, flushed_at: list[int]
) -> None:
    """A response, of one delivery or of ten, comes so long after the one before, and takes some of that itself."""
    at = now()
    flushed = []

    class Patient(takes):  # type: ignore[misc, valid-type]
        flush_every = enough

        def flush(self) -> None:
            flushed.append(len(self.received))

    def response(request: Request) -> Response:
        nonlocal at
        at += timedelta(seconds=each_seconds)
        return accept(request)._replace(duration_ms=1000 * lasts_seconds)

    bench = Bench(InMemoryTarget(), clock=lambda: at)
    bench.target = Patient(response, clock=bench.clock)
    bench.run(deliveries(flushed_at[-1]), seconds=60.0)

    assert [count for count in flushed if count] == flushed_at


def test_deliveries_that_failed_or_may_wait_are_no_blocks() -> None:
    """Each of them must be handled separately."""
    failed, waiting = [None, "boom"], [now(), None]

    assert blocks_of_rows(deliveries(2, failure=failed, payload=[b"0", None])) is None
    assert blocks_of_rows(deliveries(2, not_before=waiting)) is None
    assert blocks_of_rows(deliveries(2)) is not None


def _refuse_once(at: int) -> Callable[[Request], Response]:
    refused: list[int] = []

    def response(request: Request) -> Response:
        if request.index == at and not refused:
            refused.append(request.index)
            return accept(request)._replace(accepted=False, code=None, error_class="FileError", error="full")
        return accept(request)

    return response
