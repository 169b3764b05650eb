"""Opens and ends the batches to which a streaming task adds events.

If the streaming task ends early, the stages finish its batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from eventbridge.errors import UserError
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest.ingestion_stop import is_ingestion_stopped
from eventbridge.pipeline.ingest.reload import take_up_rules
from eventbridge.pipeline.ingest.start_offsets import any_passed_over
from eventbridge.runtime.identity import refuse_other_log
from eventbridge.runtime.quotas import storage_refusal
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource

log = logging.getLogger(__name__)


def open_following(
    runtime: Runtime, former: Batch, ends: Mapping[Partition, int], source: LogSource, holder: str
) -> Batch | None:
    """Open a batch that follows the uncommitted batch `former`, which its streaming task has read up to `ends`.

    Both batches have the same rules. Returns None if listen must plan the next batch once `former` is committed,
    because the rules or the partitions of the bus have changed, messages must be passed over, ingestion is stopped, or
    `holder` no longer has the lease.
    """
    taken = take_up_rules(runtime)
    rules = taken.rules.for_runner(former.runner)
    if rules.hash != former.rule_set:
        return None
    bus = rules.buses[former.bus]
    if {partition for partition in source.partitions() if partition.topic in bus.source.topics} != ends.keys():
        return None
    refuse_other_log(runtime, former.runner, bus, source)
    if any_passed_over(bus, source, ends):
        return None
    if storage_refusal(runtime, taken.rules, bus) or is_ingestion_stopped(runtime):
        return None
    now = runtime.ledger.now()
    batch = Batch(
        new_batch_id(now),
        "normal",
        former.runner,
        former.bus,
        "open",
        former.rule_set,
        planned_at=now,
        follows=former.batch_id,
    )
    return batch if runtime.ledger.streaming.open_following(batch, ends, holder, taken.rule_set) else None


def end_open(runtime: Runtime, batch: Batch, holder: str | None = None) -> bool:
    """Move an open batch to `planned`; return False if it stays open.

    It stays open while a process other than `holder` has the runner's lease, or while it follows an uncommitted batch.
    Once it is planned, the streaming task can record nothing more for it. Its ranges end where the last segment ends,
    and deliveries in its segments are not sent again. A batch that is not open stays as it is.
    """
    if batch.state != "open":
        return True
    if (lease := runtime.ledger.streaming.lease(batch.runner)) is not None and lease.holder != holder:
        return False
    if batch.follows is not None:
        return False
    if runtime.ledger.batches.move(batch.batch_id, "open", "planned"):
        log.warning("runner %s: the streaming task ended in the middle of batch %s", batch.runner, batch.batch_id)
    return True


def end_if_open(runtime: Runtime, batch: Batch) -> Batch:
    """Return a batch, after ending it if it is open. Raises UserError if it must stay open."""
    if batch.state != "open":
        return batch
    if not end_open(runtime, batch):
        first = f", and batch {batch.follows} must be committed first" if batch.follows else ""
        raise UserError(
            f"batch {batch.batch_id} is open: a streaming task of runner {batch.runner!r} is delivering its events"
            f"{first}. Run this again once `eventbridge status` shows it in another state"
        )
    return runtime.ledger.batches.get(batch.batch_id)
