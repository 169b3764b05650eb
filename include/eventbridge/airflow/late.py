"""Reports late batches: those not committed within `batch_late_after` of their planning. The watcher calls it.

Airflow's own deadlines do not fit: they count from when a run was queued, so they also fire for a run that failed at
once, and a run that was marked failed within its deadline cannot be cleared (Airflow 3.3 responds with 500).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from eventbridge.policy.operational_event import of_late_batch

if TYPE_CHECKING:
    from eventbridge.model.batch import Batch
    from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


def report_late_batches(runtime: Runtime, now: datetime, known: Collection[str]) -> set[str]:
    """Log each late batch that is not in `known`, queue its event `batch.late`, and return the ids of all late batches.

    The open batch of a streaming task is not late: the streaming task closes it.
    """
    seconds = runtime.settings.batch_late_after
    late = [each for each in runtime.ledger.open_batches() if _is_late(each, now, seconds)]
    new = [each for each in late if each.batch_id not in known]
    for batch in new:
        log.error(
            "ALARM: the %s batch %s of runner %s is late: planned at %s, now %s; check its last run",
            *(batch.kind, batch.batch_id, batch.runner or "none", f"{batch.planned_at:%H:%M:%S} UTC", batch.state),
        )
    if new:
        runtime.ledger.queue_operational_events([of_late_batch(each, seconds) for each in new])
    return {each.batch_id for each in late}


def _is_late(batch: Batch, now: datetime, seconds: float) -> bool:
    return batch.state != "open" and now - batch.planned_at > timedelta(seconds=seconds)
