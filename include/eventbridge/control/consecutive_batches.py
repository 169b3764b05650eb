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


def _deliver_consecutively(runtime: Runtime, plan: Callable[[], Plan], router: Router, stop: Stop) -> int:
    """Plan and deliver batches until none is left or `stop` is set. Return the number of batches."""
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
    return batches


def deliver_redrive(runtime: Runtime, redrive_id: str, router: Router, stop: Stop | None = None) -> int:
    """Deliver the batches of a redrive, one after another, until it has ended. Return the number of batches.

    If `stop` is set, this returns after the current batch. The redrive then stays `running` and can be continued.
    Deliveries to be retried become pending, as in any batch.
    """
    return _deliver_consecutively(runtime, partial(plan_redrive, runtime, redrive_id), router, stop or Stop())


def deliver_replay(runtime: Runtime, replay_id: str, router: Router, stop: Stop | None = None) -> int:
    """Deliver the batches of a replay, one after another, until it has ended or is paused. Return how many there were.

    If `stop` is set, this returns after the current batch. The replay then stays `running` and can be continued.
    Deliveries to be retried become pending, as in any batch.
    """
    return _deliver_consecutively(runtime, partial(plan_replay, runtime, replay_id), router, stop or Stop())


def pause_replay(runtime: Runtime, replay_id: str) -> bool:
    """Pause a running replay, which takes effect after its current batch. Return False if it is not running."""
    return runtime.ledger.replays.set_state(replay_id, "running", "paused")


def resume_replay(runtime: Runtime, replay_id: str) -> bool:
    """Resume a paused replay, so that its next batch can be planned. Return False if it is not paused."""
    return runtime.ledger.replays.set_state(replay_id, "paused", "running")


def cancel_replay(runtime: Runtime, replay_id: str) -> bool:
    """Cancel a replay, which takes effect after its current batch. Return False if it has already ended."""
    return runtime.ledger.replays.end(replay_id, "cancelled")
