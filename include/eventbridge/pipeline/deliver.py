"""Runs all stages of batches in this process, without Airflow.

`eventbridge deliver` and tests call this module. The DAGs `eventbridge_deliver_<runner>` and
`eventbridge_retry_deliveries` run the same stages as tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from eventbridge.delivery.push import PushReport, push
from eventbridge.delivery.segments import is_of_streaming_task, responses_in, segments
from eventbridge.errors import EventBridgeError
from eventbridge.model.chunk import SLOW_LANE_POOL
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.deferred import due_deferred_matches, plan_deferred_matches
from eventbridge.pipeline.retry.plan import plan_retries, settle_stale, stale_batches
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.policy.chunking import PoolSlots
from eventbridge.progress import Progress, unreported
from eventbridge.routing.job import Router
from eventbridge.runtime.claims import OtherClaims
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

log = logging.getLogger(__name__)

#: The maximum number of chunks pushed at the same time. It is above 1 so that a chunk whose target hangs does not stop
#: the others.
_PUSHES_AT_ONCE = 4
#: The slots of the pool for retry batches: as many as the chunks that this process pushes at the same time.
_LANES = {SLOW_LANE_POOL: PoolSlots(_PUSHES_AT_ONCE, _PUSHES_AT_ONCE)}
#: The minimum time, in seconds, between two checks of whether another process has finished its batch.
_RECHECK_SECONDS = 0.5


@dataclass(frozen=True)
class Idle:
    """The result of `deliver_until_idle`: how many batches it ran, and how many deliveries are still pending."""

    batches: int
    retry_batches: int
    next_due_at: datetime | None
    pending: int
    on_hold: int


def deliver_batch(runtime: Runtime, runner: str, router: Router, stop: Stop) -> str | None:
    """Move one batch of a runner through all stages and return its id; None if there is no batch to run."""
    batch_id = listen(runtime, runner)
    if batch_id is None:
        return None
    buffer(runtime, batch_id)
    push_and_settle(runtime, batch_id, route(runtime, batch_id, router), stop)
    return batch_id


def deliver_retries(runtime: Runtime, runner: str, stop: Stop) -> str | None:
    """Move one retry batch of a runner through its stages and return its id; None if nothing is due."""
    settle_stale(runtime, runner)
    plan = plan_retries(runtime, runner, _LANES)
    if plan.batch_id is not None:
        push_and_settle(runtime, plan.batch_id, plan.chunk_ids, stop)
    return plan.batch_id


def anything_waits_for_retry(runtime: Runtime, runner: str) -> bool:
    """Return whether a retry batch may have work. The three queries take a tenth of the time that planning takes."""
    ledger = runtime.ledger
    return bool(
        ledger.pending.waiting_targets(runner)
        or ledger.deferred_matches.waiting(runner)
        or stale_batches(runtime, runner)
    )


def deliver_deferred_matches(runtime: Runtime, runner: str, router: Router, stop: Stop) -> str | None:
    """Move one of a runner's batches of deferred matches through its stages and return its id; None if none is due."""
    batch_id = plan_deferred_matches(runtime, runner)
    if batch_id is not None:
        push_and_settle(runtime, batch_id, route(runtime, batch_id, router), stop)
    return batch_id


def deliver_until_idle(
    runtime: Runtime,
    runner: str,
    router: Router,
    *,
    wait_seconds: float = 0.0,
    stop: Stop | None = None,
    progress: Progress = unreported,
) -> Idle:
    """Deliver until no event is available and no pending delivery falls due within `wait_seconds`, or until `stop` is
    set. `progress` gets the number of batches."""
    stop = stop or Stop()
    batches = retry_batches = 0
    is_reported = False
    while not stop.is_set():
        normal = deliver_batch(runtime, runner, router, stop)
        retried = deliver_retries(runtime, runner, stop)
        deferred = deliver_deferred_matches(runtime, runner, router, stop)
        batches += normal is not None
        retry_batches += (retried is not None) + (deferred is not None)
        progress(batches + retry_batches, None)
        if normal is None and retried is None and deferred is None:
            due_at = next_due_at(runtime, runner)
            if due_at is None:
                break
            wait = (due_at - runtime.clock()).total_seconds()
            if wait > wait_seconds:
                break
            if wait <= 0 and not is_reported:
                # with the default settings, settle_stale settles the batch of a dead process 90 s after it was planned
                log.warning("waiting for an unfinished batch, which contains deliveries that are due")
                is_reported = True
            stop.wait(max(_RECHECK_SECONDS, wait))
    pending, on_hold = pending_deliveries(runtime, runner)
    return Idle(batches, retry_batches, next_due_at(runtime, runner), pending, on_hold)


def pending_deliveries(runtime: Runtime, runner: str) -> tuple[int, int]:
    """Return how many deliveries of a runner are pending, and how many of those are on hold."""
    counts = runtime.ledger.pending.counts(runner=runner)
    return sum(row.count for row in counts), sum(row.count for row in counts if row.state == "on_hold")


def next_due_at(runtime: Runtime, runner: str) -> datetime | None:
    """Return when the next pending delivery or deferred match of a runner is due; None if none is scheduled."""
    statuses = runtime.ledger.targets.statuses()
    due = []
    for row in runtime.ledger.pending.counts(runner=runner):
        if row.state == "scheduled" and row.next_due_at is not None:
            status = statuses.get((row.rule, row.target))
            wait = status.until if status is not None and status.state in ("degraded", "half-open") else None
            pause = status.paused_until if status is not None else None
            # an open breaker or a pause allows no delivery before it ends
            due.append(max(row.next_due_at, wait or row.next_due_at, pause or row.next_due_at))
    deferred_match = due_deferred_matches(runtime, runner)
    return min([*due, deferred_match] if deferred_match is not None else due, default=None)


def push_and_settle(
    runtime: Runtime,
    batch_id: str,
    chunk_ids: Sequence[int],
    stop: Stop,
    only: Collection[tuple[str, str]] | None = None,
) -> list[PushReport]:
    """Push chunks of a batch, then settle it, schedule its retries and commit it. Return the results of the pushes.

    `only` limits the push to the deliveries of these (rule, target) pairs. The function waits for chunks that another
    process is sending. If `stop` is set while another process is sending, the batch is left to that process.
    """
    written = [
        file for file in segments(runtime, batch_id) if is_of_streaming_task(file)
    ]  # read here once, instead of once for each chunk
    of_streaming_task = responses_in(runtime, written) if written else None
    with ThreadPoolExecutor(_PUSHES_AT_ONCE, thread_name_prefix="push") as pool:
        pushes = [
            pool.submit(push, runtime, batch_id, chunk_id, stop, only, of_streaming_task) for chunk_id in chunk_ids
        ]
    reports = []
    for chunk_id, done in zip(chunk_ids, pushes, strict=True):
        error = done.exception()
        if error is None:
            reports.append(done.result())
        elif isinstance(error, EventBridgeError):
            # expected: deliveries without an outcome are settled as unknown and become pending
            log.error("push of chunk %d of batch %s failed: %s", chunk_id, batch_id, error)
        else:
            raise error
    if stop.is_set() and OtherClaims(runtime, batch_id).live():
        return reports  # the process that is still sending finishes the batch
    write_dead_letters(runtime, batch_id)
    schedule_retries(runtime, batch_id)
    commit(runtime, batch_id)
    return reports
