"""Applies retention to store, ledger and embedded buses, and removes lost files.

Called by the DAG `eventbridge_maintain_store` and by `eventbridge maintain`. A run uses the ledger's indexes and lists
days of the store, never all files, and ends after a bounded time; the next run continues. If it is killed anywhere, or
runs twice at once, it removes nothing that is needed: a batch is first marked in the ledger, then its files are
removed, then its rows.
"""

from __future__ import annotations

from datetime import timedelta

from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.ledger_identity import claim_runner, refuse_lost_ledger
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.store_size import count_store, is_count_due
from eventbridge.upkeep.batches import prune_batches
from eventbridge.upkeep.buses import trim_buses
from eventbridge.upkeep.event_index import index_events
from eventbridge.upkeep.history import prune_history
from eventbridge.upkeep.lost_files import sweep_expired, sweep_lost
from eventbridge.upkeep.retentions import Retentions
from eventbridge.upkeep.run import Maintained, Run
from eventbridge.upkeep.stats import fold_stats


@instrumented("maintain", of="")
def maintain(runtime: Runtime, *, dry_run: bool = False, budget: timedelta | None = None) -> Maintained:
    """Apply retention and return what was removed; `budget` None: that of the settings.

    Raises LedgerLostError, and removes nothing, if ledger and store do not belong together.
    """
    for runner in sorted({row.group for row in runtime.ledger.consumer_offsets()}):
        claim_runner(runtime, runner)
    refuse_lost_ledger(runtime, always=True)
    seconds = runtime.settings.maintain_timeout if budget is None else budget.total_seconds()
    run = Run(runtime, seconds, dry_run=dry_run)
    retentions = Retentions(runtime, run.now)
    fold_stats(run)  # first: it is quick, and pruning may take all the time
    prune_batches(run, retentions)
    prune_history(run, retentions)
    sweep_lost(run)
    sweep_expired(run, retentions)
    trim_buses(run)
    index_events(run)
    _count(run)
    return run.done


def _count(run: Run) -> None:
    """Measure the store for its quota after the removals."""
    if not run.dry_run and is_count_due(run.runtime, run.now):
        run.done.store_bytes = count_store(run.runtime)
