"""The processes that deliver a runner's events now, for a command that takes the runner over."""

from __future__ import annotations

from eventbridge.runtime.processes import is_gone
from eventbridge.runtime.runtime import Runtime
from eventbridge.streaming import lease as streaming_lease


def streaming_process(runtime: Runtime, runner: str) -> str | None:
    """Return the process, as `host:number`, that has the lease of a runner; None if none has, or it is gone."""
    lease = runtime.ledger.streaming_lease(runner)
    return None if lease is None or streaming_lease.is_gone(lease.holder) else lease.holder.rpartition(":")[0]


def pushes_at_work(runtime: Runtime, runner: str) -> tuple[str, list[str]] | None:
    """Return the batch of a runner that is being sent, and the processes, as `host:number`, that send it."""
    batch = runtime.ledger.unfinished_batch(runner)
    if batch is None:
        return None
    workers = {each.worker for each in runtime.ledger.live_claims(batch.batch_id)}
    alive = sorted(each for each in workers if not is_gone(each))
    return (batch.batch_id, alive) if alive else None
