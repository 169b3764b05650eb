"""Records a replay whose archive is all there, or none: retention may take of it while it is asked for."""

from __future__ import annotations

from eventbridge.errors import UserError
from eventbridge.model.replay import Replay
from eventbridge.stages.replay.request import ReplayRequest
from eventbridge.stages.runtime.pruned import refuse_pruned
from eventbridge.stages.runtime.runtime import Runtime


def refuse_pruned_request(runtime: Runtime, request: ReplayRequest) -> None:
    """Raise UserError if batches of a request's time lost their archive or, if it asks for them, their outcomes."""
    refuse_pruned(runtime, request.bus, request.since, request.until, outcomes=request.by_target)


def record_replay(runtime: Runtime, request: ReplayRequest, made: Replay) -> Replay:
    """Record what a request was made into, or return what its run has begun already.

    Once it is recorded retention leaves its archive alone. Raises UserError, and cancels it, if some had gone by then.
    """
    recorded = runtime.ledger.begin_replay(made)
    try:
        refuse_pruned_request(runtime, request)
    except UserError:
        runtime.ledger.end_replay(recorded.replay_id, "cancelled")
        raise
    return recorded
