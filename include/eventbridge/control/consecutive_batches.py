"""Delivers all batches of one redrive or replay in this process, one batch after another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Protocol

from eventbridge.dead_letters.redrive_plan import plan_redrive
from eventbridge.pipeline.deliver import push_and_settle
from eventbridge.pipeline.retry.plan import settle_stale
from eventbridge.pipeline.route.stage import route
from eventbridge.progress import Progress, unreported
from eventbridge.replay.account import events_to_read
from eventbridge.replay.plan import plan_replay
from eventbridge.routing.job import Router
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

#: The maximum time to wait before planning the next batch is tried again.
_RECHECK_SECONDS = 1.0


class Plan(Protocol):
    """The next batch, or the time at which to plan again. Both are None if no batch is left."""

    @property
    def batch_id(self) -> str | None:
        """The batch to deliver now, or None."""

    @property
    def wait_until(self) -> datetime | None:
        """When the next batch may be planned, or None."""


def _deliver_consecutively(
    runtime: Runtime, plan: Callable[[], Plan], router: Router, stop: Stop, report: Callable[[str | None], None]
) -> int:
    """Plan and deliver batches until none is left or `stop` is set. Return the number of batches.

    `report` is called after each step, with the batch that it delivered.
    """
    batches = 0
    while not stop.is_set():
        settle_stale(runtime)
        planned = plan()
        if planned.batch_id is not None:
            push_and_settle(runtime, planned.batch_id, route(runtime, planned.batch_id, router), stop)
            batches += 1
        elif planned.wait_until is None:
            break
        else:
            wait = (planned.wait_until - runtime.ledger.now()).total_seconds()
            stop.wait(min(max(wait, 0.0), _RECHECK_SECONDS))
        report(planned.batch_id)
    return batches


def deliver_redrive(
    runtime: Runtime,
    redrive_id: str,
    router: Router,
    stop: Stop | None = None,
    progress: Progress = unreported,
) -> int:
    """Deliver the batches of a redrive, one after another, until it has ended. Return the number of batches.

    If `stop` is set, this returns after the current batch. The redrive then stays `running` and can be continued.
    Deliveries to be retried become pending, as in any batch. `progress` gets the number of dead letters taken.
    """
    taken = 0

    def report(batch_id: str | None) -> None:
        nonlocal taken
        if batch_id is not None:
            taken += sum(each.count for each in runtime.ledger.redrives.list_taken_by(batch_id))
            progress(taken, None)

    return _deliver_consecutively(runtime, partial(plan_redrive, runtime, redrive_id), router, stop or Stop(), report)


def deliver_replay(
    runtime: Runtime, replay_id: str, router: Router, stop: Stop | None = None, progress: Progress = unreported
) -> int:
    """Deliver the batches of a replay, one after another, until it has ended or is paused. Return how many there were.

    If `stop` is set, this returns after the current batch. The replay then stays `running` and can be continued.
    Deliveries to be retried become pending, as in any batch. `progress` gets the number of archived events read.
    """
    # The ledger is queried only if progress is shown: each report reads what the whole replay has read so far.
    total = None if progress is unreported else events_to_read(runtime, runtime.ledger.replays.get(replay_id))

    def report(_: str | None) -> None:
        if progress is not unreported:
            progress(sum(each.end_row - each.first_row for each in runtime.ledger.replays.searched(replay_id)), total)

    return _deliver_consecutively(runtime, partial(plan_replay, runtime, replay_id), router, stop or Stop(), report)


def pause_replay(runtime: Runtime, replay_id: str) -> bool:
    """Pause a running replay. The pause takes effect after the current batch. Return False if it is not running."""
    return runtime.ledger.replays.set_state(replay_id, "running", "paused")


def resume_replay(runtime: Runtime, replay_id: str) -> bool:
    """Resume a paused replay, so that its next batch can be planned. Return False if it is not paused."""
    return runtime.ledger.replays.set_state(replay_id, "paused", "running")


def cancel_replay(runtime: Runtime, replay_id: str) -> bool:
    """Cancel a replay. It ends after its current batch. Return False if it has already ended."""
    return runtime.ledger.replays.end(replay_id, "cancelled")
