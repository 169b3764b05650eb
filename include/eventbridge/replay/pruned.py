"""Records a replay only if its archive is complete: retention may remove files while it is requested."""

from __future__ import annotations

from eventbridge.errors import UserError
from eventbridge.model.redelivery import Replay
from eventbridge.replay.request import ReplayRequest
from eventbridge.runtime.pruned import refuse_pruned
from eventbridge.runtime.runtime import Runtime


def refuse_pruned_request(runtime: Runtime, request: ReplayRequest) -> None:
    """Raise UserError if batches of a request's time lost their archive or, if it needs them, their outcomes."""
    refuse_pruned(runtime, request.bus, request.since, request.until, outcomes=request.by_target)


def record_replay(runtime: Runtime, request: ReplayRequest, made: Replay) -> Replay:
    """Record a replay, or return the one that its run has begun already.

    Once it is recorded, retention keeps its archive. Raises UserError, and cancels it, if part was removed before.
    """
    recorded = runtime.ledger.begin_replay(made)
    try:
        refuse_pruned_request(runtime, request)
    except UserError:
        runtime.ledger.end_replay(recorded.replay_id, "cancelled")
        raise
    return recorded
