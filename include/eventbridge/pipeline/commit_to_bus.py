"""Commits the offsets of the ledger on the bus: after the commit of a batch, and again if the bus refused them."""

from __future__ import annotations

import logging
from contextlib import closing

from eventbridge.errors import BusError, OffsetGapError, RuleFileError
from eventbridge.model.batch import Batch
from eventbridge.runtime.identity import refuse_other_log
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


def commit_to_bus(runtime: Runtime, batch: Batch) -> bool:
    """Commit the ledger's offsets of a batch's runner on the bus; False and an alarm if the bus refuses."""
    bus = runtime.rules_of(batch).buses[batch.bus]
    try:
        with closing(runtime.open_source(bus)) as source:
            refuse_other_log(runtime, batch.runner, bus, source)
            source.commit(batch.runner, runtime.ledger.offsets.committed(batch.runner))
    except (BusError, OffsetGapError) as error:
        log.error("ALARM the bus %s did not take the offsets of batch %s: %s", batch.bus, batch.batch_id, error)
        return False
    runtime.ledger.settlement.mark_bus_committed(batch.batch_id)
    return True


def repeat_bus_commits(runtime: Runtime, runner: str) -> None:
    """Commit offsets on the bus that an earlier commit could not; if that fails too, leave it to the next listen.

    It commits the current offsets of the ledger, which is the source of truth: the end of an old batch would move the
    group back.
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
    # An error in the current rules, or of the current bus, does not stop an open batch.
    except (BusError, OffsetGapError, RuleFileError) as error:
        log.warning("the bus %s still does not take the offsets of %s: %s", newest.bus, runner, error)
        return
    for batch in outstanding:
        runtime.ledger.settlement.mark_bus_committed(batch.batch_id)
