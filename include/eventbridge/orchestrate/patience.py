"""How long a run of replays or redrives waits until its next batch may be planned: less than a run may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from eventbridge.errors import ReconciliationError

if TYPE_CHECKING:
    from eventbridge.stages.operate.consecutive_batches import Plan
    from eventbridge.stages.runtime.runtime import Runtime

_LOOK_AGAIN_SECONDS = 1.0
#: A run that waited longer would be ended at its time-out, and nobody go on; so it leaves that to the next run.
PATIENCE_SECONDS = 60.0

Planned = TypeVar("Planned", bound="Plan")


def planned_in_time(
    runtime: Runtime, plan: Callable[[], Planned], patience_seconds: float = PATIENCE_SECONDS
) -> Planned:
    """Plan, again and again while that says to wait; returns a plan to wait once `patience_seconds` are over.

    Batches whose runs died are settled meanwhile: planning may wait for one. What of them cannot be settled is told by
    `settle_stale` itself, and by the run of `eventbridge_retry_deliveries` that fails of it.
    """
    from eventbridge.stages.retry.plan import settle_stale

    began = time.monotonic()
    while True:
        with suppress(ReconciliationError):
            settle_stale(runtime)
        planned = plan()
        if planned.batch_id is not None or planned.wait_until is None:
            return planned
        if time.monotonic() - began >= patience_seconds:
            return planned
        wait = (planned.wait_until - runtime.ledger.now()).total_seconds()
        time.sleep(min(max(wait, 0.0), _LOOK_AGAIN_SECONDS))
