"""The processes that deliver a runner's events now, for a command that takes the runner over."""

from __future__ import annotations

from eventbridge.stages.operate import shift_lease
from eventbridge.stages.runtime.processes import is_gone
from eventbridge.stages.runtime.runtime import Runtime


def shift_at_work(work: Runtime, runner: str) -> str | None:
    """Return the process, as `host:number`, that has the shift of a runner; None if none has, or it is gone."""
    shift = work.ledger.shift(runner)
    return None if shift is None or shift_lease.is_gone(shift.holder) else shift.holder.rpartition(":")[0]


def pushes_at_work(work: Runtime, runner: str) -> tuple[str, list[str]] | None:
    """Return the batch of a runner that is being sent, and the processes, as `host:number`, that send it."""
    batch = work.ledger.unfinished_batch(runner)
    if batch is None:
        return None
    workers = {each.worker for each in work.ledger.live_claims(batch.batch_id)}
    alive = sorted(each for each in workers if not is_gone(each))
    return (batch.batch_id, alive) if alive else None
