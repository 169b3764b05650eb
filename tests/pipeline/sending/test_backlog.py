"""A backlog of a healthy target: a retry run takes as much as the target and the slow lane can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pipeline.delivering import RUNNER, Sending, http

from eventbridge.control.overrides import enable_target
from eventbridge.model.chunk import SLOW_LANE_POOL
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.policy.chunking import PoolSlots
from eventbridge.repair.audit import audit
from eventbridge.runtime.runtime import Runtime

HEALTHY = "/healthy/crm"


def add_pending(sending: Sending, count: int, settings: Mapping[str, object] | None = None, **targets: str) -> Runtime:
    """Add so many pending deliveries of each target, due now, in rows of four."""
    batch = sending.routed(count, settings={"chunk_max_deliveries": 4, **(settings or {})}, **targets)
    sending.settle(batch)  # before any push
    assert commit(sending.runtime, batch.batch_id)
    return sending.runtime


def plan(runtime: Runtime, free: int | None = None) -> list[Counter[str]]:
    """Plan a retry batch and return how many deliveries of which targets are in each of its chunks."""
    pools = None if free is None else {SLOW_LANE_POOL: PoolSlots(8, free)}
    batch_id = plan_retries(runtime, RUNNER, pools).batch_id
    chunks = runtime.ledger.chunks.list_for_batch(batch_id) if batch_id is not None else []
    counts: list[Counter[str]] = [Counter() for _ in chunks]
    for found, chunk in zip(counts, chunks, strict=True):
        for piece in chunk.pieces:
            found[piece.target] += piece.count
    return counts


def test_a_run_takes_as_many_chunks_as_the_slow_lane_has_room_for(sending: Sending) -> None:
    """Twice its free slots, as a pool of new deliveries would get; each chunk as large as ever."""
    runtime = add_pending(sending, 40, crm=HEALTHY)

    assert plan(runtime, free=3) == 6 * [Counter(crm=4)]


def test_a_full_slow_lane_gets_one_chunk_of_each_target(sending: Sending) -> None:
    """Due deliveries have their turn however full the lane is; a backlog waits."""
    runtime = add_pending(sending, 20, crm=HEALTHY, erp=HEALTHY)

    assert plan(runtime, free=0) == [Counter(crm=4), Counter(erp=4)]


def test_backlogs_share_what_the_first_chunks_leave(sending: Sending) -> None:
    """Each target has its first chunk before any has its second, and then all get the same."""
    runtime = add_pending(sending, 40, crm=HEALTHY, erp=HEALTHY)

    chunks = plan(runtime, free=4)

    assert [next(iter(found)) for found in chunks[:2]] == ["crm", "erp"]
    assert sum(chunks, Counter()) == Counter(crm=16, erp=16)


def test_a_target_gets_no_more_than_the_setting_says(sending: Sending) -> None:
    """EVENTBRIDGE_RETRY_MAX_PER_TARGET bounds all its chunks together; what was pending together is not divided."""
    runtime = add_pending(sending, 40, {"retry_max_per_target": 10}, crm=HEALTHY)

    assert plan(runtime) == 2 * [Counter(crm=4)]


def test_a_batch_comes_to_no_more_than_can_be_settled(sending: Sending) -> None:
    """EVENTBRIDGE_BATCH_MAX_DELIVERIES bounds what targets get beside their first chunks."""
    runtime = add_pending(sending, 40, {"batch_max_deliveries": 22}, crm=HEALTHY, erp=HEALTHY)

    assert sum(plan(runtime), Counter()).total() == 20


def test_deliveries_over_the_rate_stay_pending(sending: Sending) -> None:
    """Of a target with a rate a run takes what that allows in a push budget, in however many chunks."""
    runtime = add_pending(sending, 40, {"push_timeout": 2}, crm=http(HEALTHY, rate="6/s"))

    assert sum(plan(runtime), Counter()) == Counter(crm=12)


def test_a_backlog_is_taken_by_one_batch_at_a_time(sending: Sending) -> None:
    """While a batch has some of it in progress the next run takes a chunk, as of any target that is healthy."""
    runtime = add_pending(sending, 40, crm=HEALTHY)
    plan(runtime, free=2)

    assert plan(runtime, free=8) == [Counter(crm=4)]


def test_a_target_that_has_just_healed_gets_what_its_ramp_lets_through(sending: Sending) -> None:
    """5 a second at first: in a push budget of a second it takes 6, not the whole backlog."""
    runtime = add_pending(sending, 40, {"push_timeout": 1}, crm=HEALTHY)
    runtime.ledger.targets.set_status("orders", "crm", "degraded", "for the test")
    enable_target(runtime, "orders", "crm")

    assert plan(runtime) == [Counter(crm=4)]


def test_a_degraded_target_gets_one_chunk(sending: Sending) -> None:
    """It is slow: one chunk at a time, as small as any target's."""
    runtime = add_pending(sending, 40, crm=HEALTHY)
    runtime.ledger.targets.set_status("orders", "crm", "degraded", "for the test")

    chunks = plan(runtime)

    assert len(chunks) == 1
    assert chunks[0].total() <= 5


def test_a_backlog_is_delivered_once_each_in_few_runs(sending: Sending) -> None:
    """Forty chunks need as many runs as the lane's width says, not forty."""
    runtime = add_pending(sending, 160, crm=HEALTHY)

    runs = 0
    while sending.retry() is not None:
        runs += 1

    assert runs == 5
    assert len(sending.requests()) == 160
    assert audit(runtime).differences == ()
