"""Commits a runner's offsets from the ledger to the bus after each batch, and again later if the bus rejected them."""

from __future__ import annotations

import logging
from contextlib import closing

from eventbridge.errors import BusError, OffsetGapError, RuleFileError
from eventbridge.model.batch import Batch
from eventbridge.runtime.identity import refuse_other_log
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


def commit_to_bus(runtime: Runtime, batch: Batch) -> bool:
    """Commit the offsets of a batch's runner to the bus; log an alarm and return False if the bus rejects them."""
    bus = runtime.rules_of(batch).buses[batch.bus]
    try:
        with closing(runtime.open_source(bus)) as source:
            refuse_other_log(runtime, batch.runner, bus, source)
            source.commit(batch.runner, runtime.ledger.offsets.committed(batch.runner))
    except (BusError, OffsetGapError) as error:
        log.error("ALARM the bus %s did not accept the offsets of batch %s: %s", batch.bus, batch.batch_id, error)
        return False
    runtime.ledger.settlement.mark_bus_committed(batch.batch_id)
    return True


def repeat_bus_commits(runtime: Runtime, runner: str) -> None:
    """Repeat the commits that the bus rejected earlier; if that fails too, the next listen tries again.

    The current offsets of the ledger are committed, because the offsets of an old batch would move the consumer group
    back.
    """
    outstanding = runtime.ledger.settlement.bus_commits_outstanding(runner)
    if not outstanding:
        return
    newest = outstanding[-1]
    try:
        bus = runtime.rule_set().buses.get(newest.bus) or runtime.rules_of(newest).buses[newest.bus]
        with closing(runtime.open_source(bus)) as source:
            refuse_other_log(runtime, runner, bus, source)
            standing = runtime.ledger.offsets.committed(runner)
            source.commit(
                runner, {partition: standing[partition] for partition in source.partitions() if partition in standing}
            )
    # An error in the current rules or of the bus must not stop an unfinished batch.
    except (BusError, OffsetGapError, RuleFileError) as error:
        log.warning("the bus %s still does not accept the offsets of runner %s: %s", newest.bus, runner, error)
        return
    for batch in outstanding:
        runtime.ledger.settlement.mark_bus_committed(batch.batch_id)
