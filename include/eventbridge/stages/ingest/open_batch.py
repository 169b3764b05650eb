"""A batch that a shift has open: whoever finds it after the shift's end has the ordinary stages finish it."""

from __future__ import annotations

import logging

from eventbridge.errors import UserError
from eventbridge.model.batch import Batch
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)


def end_open(work: Runtime, batch: Batch, holder: str | None = None) -> bool:
    """Move an open batch to `planned` unless its runner's shift is another's than `holder`'s; False: it is open.

    From then on the shift can record nothing of it: its ranges end where its last segment says, and what the segments
    show is not delivered again. Does nothing to a batch that is not open.
    """
    if batch.state != "open":
        return True
    if (shift := work.ledger.shift(batch.runner)) is not None and shift.holder != holder:
        return False
    if work.ledger.move_batch(batch.batch_id, "open", "planned"):
        log.warning("runner %s: its shift ended in the middle of batch %s", batch.runner, batch.batch_id)
    return True


def closed(work: Runtime, batch: Batch) -> Batch:
    """Return a batch as it is once no shift has it open; raises UserError while one has."""
    if batch.state != "open":
        return batch
    if not end_open(work, batch):
        raise UserError(
            f"batch {batch.batch_id} is open: a shift of runner {batch.runner!r} delivers its events. "
            "Run this again once `eventbridge status` shows it in another state"
        )
    return work.ledger.batch(batch.batch_id)
