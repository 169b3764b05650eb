"""Makes batches to repair, and repairs them."""

from __future__ import annotations

from pipeline.delivering import REFUSED, Sending

from eventbridge.model.batch import Batch
from eventbridge.repair.repair import Repair, repair_batch
from eventbridge.routing.task import InProcessRouter


def repair(sending: Sending, batch: Batch, *, dry_run: bool = False) -> Repair:
    """Repair a batch."""
    return repair_batch(sending.runtime, batch.batch_id, InProcessRouter(sending.runtime.store), dry_run=dry_run)


def settled(sending: Sending) -> Batch:
    """Return a settled batch: four delivered, four dead and four pending deliveries."""
    batch = sending.routed(4, good="/healthy/good", bad="/bad/crm", down=REFUSED)
    sending.push(batch)
    sending.settle(batch)
    return batch
