"""Records a replay whose archive is all there, or none: retention may take of it while it is asked for."""

from __future__ import annotations

from eventbridge.errors import UserError
from eventbridge.model.replay import Replay
from eventbridge.stages.replay.wish import Wish
from eventbridge.stages.runtime.pruned import refuse_pruned
from eventbridge.stages.runtime.runtime import Runtime


def refuse_pruned_wish(work: Runtime, wish: Wish) -> None:
    """Raise UserError if batches of a wish's time lost their archive or, if it asks for them, their outcomes."""
    refuse_pruned(work, wish.bus, wish.since, wish.until, outcomes=wish.by_target)


def record_replay(work: Runtime, wish: Wish, made: Replay) -> Replay:
    """Record what a wish was made into, or return what its run has begun already.

    Once it is recorded retention leaves its archive alone. Raises UserError, and cancels it, if some had gone by then.
    """
    recorded = work.ledger.begin_replay(made)
    try:
        refuse_pruned_wish(work, wish)
    except UserError:
        work.ledger.end_replay(recorded.replay_id, "cancelled")
        raise
    return recorded
