"""Batches that are planned one after the other, in this process: those of a redrive, or of a replay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from eventbridge.pipeline.deliver import push_and_settle
from eventbridge.pipeline.retry.plan import settle_stale
from eventbridge.pipeline.route.stage import route
from eventbridge.routing.job import Router
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

#: How long to wait at most until it is asked again what is to be done.
_RECHECK_SECONDS = 1.0


class Plan(Protocol):
    """The next batch; without one, when to plan again; with neither it is over."""

    @property
    def batch_id(self) -> str | None:
        """The batch to deliver now."""

    @property
    def wait_until(self) -> datetime | None:
        """When the next one may be planned."""


def deliver_consecutively(runtime: Runtime, plan: Callable[[], Plan], router: Router, stop: Stop) -> int:
    """Move each batch that is planned through its stages until it is over or `stop` is set; return how many."""
    batches = 0
    while not stop.is_set():
        settle_stale(runtime)
        planned = plan()
        if planned.batch_id is not None:
            push_and_settle(runtime, planned.batch_id, route(runtime, planned.batch_id, router), stop)
            batches += 1
        elif planned.wait_until is None:
            break
        else:
            wait = (planned.wait_until - runtime.ledger.now()).total_seconds()
            stop.wait(min(max(wait, 0.0), _RECHECK_SECONDS))
    return batches
