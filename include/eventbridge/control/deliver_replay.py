"""Delivers all batches of one replay in this process; called by `eventbridge replay`."""

from __future__ import annotations

from functools import partial

from eventbridge.control.consecutive_batches import deliver_consecutively
from eventbridge.replay.plan import plan_replay
from eventbridge.routing.job import Router
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop


def deliver_replay(runtime: Runtime, replay_id: str, router: Router, stop: Stop | None = None) -> int:
    """Move the batches of a replay through their stages, in turn, until it has ended or is paused; return how many.

    `stop` ends it after the batch under way; the replay stays running and can be continued. Deliveries to retry are
    pending, as in any batch.
    """
    return deliver_consecutively(runtime, partial(plan_replay, runtime, replay_id), router, stop or Stop())


def pause_replay(runtime: Runtime, replay_id: str) -> bool:
    """Pause a running replay, whose batch under way is finished; False if it is not running."""
    return runtime.ledger.set_replay_state(replay_id, "running", "paused")


def resume_replay(runtime: Runtime, replay_id: str) -> bool:
    """Resume a paused replay, so that its next batch can be planned; False if it is not paused."""
    return runtime.ledger.set_replay_state(replay_id, "paused", "running")


def cancel_replay(runtime: Runtime, replay_id: str) -> bool:
    """Cancel a replay that has not ended: the batch under way is finished, no further one is planned."""
    return runtime.ledger.end_replay(replay_id, "cancelled")
