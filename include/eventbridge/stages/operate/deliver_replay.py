"""All batches of one replay in this process, without Airflow; called by `eventbridge replay`."""

from __future__ import annotations

import threading

from eventbridge.routing.job import Router
from eventbridge.stages.operate.deliver import push_and_settle
from eventbridge.stages.replay.plan import plan_replay
from eventbridge.stages.retry.plan import settle_stale
from eventbridge.stages.route.stage import route
from eventbridge.stages.runtime.runtime import Runtime

#: How long to wait at most until it is asked again what is to be done.
_LOOK_AGAIN_SECONDS = 1.0


def deliver_replay(work: Runtime, replay_id: str, router: Router, stop: threading.Event | None = None) -> int:
    """Move the batches of a replay through their stages, in turn, until it has ended or is paused; return how many.

    `stop` ends it after the batch under way; the replay stays running and can be gone on with. What is to be tried
    again is parked, as that of any batch.
    """
    stop = stop or threading.Event()
    batches = 0
    while not stop.is_set():
        settle_stale(work)
        plan = plan_replay(work, replay_id)
        if plan.batch_id is not None:
            push_and_settle(work, plan.batch_id, route(work, plan.batch_id, router), stop)
            batches += 1
        elif plan.wait_until is None:
            break
        else:
            wait = (plan.wait_until - work.ledger.now()).total_seconds()
            stop.wait(min(max(wait, 0.0), _LOOK_AGAIN_SECONDS))
    return batches


def pause_replay(work: Runtime, replay_id: str) -> bool:
    """Pause a running replay, whose batch under way is finished; False if it is not running."""
    return work.ledger.set_replay_state(replay_id, "running", "paused")


def resume_replay(work: Runtime, replay_id: str) -> bool:
    """Let a paused replay go on, for whoever plans its next batch; False if it is not paused."""
    return work.ledger.set_replay_state(replay_id, "paused", "running")


def cancel_replay(work: Runtime, replay_id: str) -> bool:
    """Cancel a replay that has not ended: the batch under way is finished, no further one is planned."""
    return work.ledger.end_replay(replay_id, "cancelled")
