"""Delivers all batches of one redrive in this process; called by `eventbridge dead-letters redrive`."""

from __future__ import annotations

from functools import partial

from eventbridge.control.consecutive_batches import deliver_consecutively
from eventbridge.dead_letters.redrive_plan import plan_redrive
from eventbridge.routing.job import Router
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop


def deliver_redrive(runtime: Runtime, redrive_id: str, router: Router, stop: Stop | None = None) -> int:
    """Move the batches of a redrive through their stages, in turn, until it has ended; return how many.

    `stop` ends it after the batch under way; the redrive stays running and can be continued. Deliveries to retry are
    pending, as in any batch.
    """
    return deliver_consecutively(runtime, partial(plan_redrive, runtime, redrive_id), router, stop or Stop())
