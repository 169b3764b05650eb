"""Airflow's deadline alert of runs that move one batch: `batch is late`, told while the run still runs.

The alert is called in the triggerer, so everything that it imports or waits for stands in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any

from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from eventbridge.config.settings import Settings

log = logging.getLogger(__name__)

NAME = "batch is late"


def late_alert(settings: Settings) -> DeadlineAlert:
    """Return the alert for runs that are at work so long after they were queued."""
    seconds = settings.batch_late_seconds
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=AsyncCallback(f"{__name__}.tell_late", kwargs={"seconds": seconds}),
        name=NAME,
    )


async def tell_late(*, seconds: float, context: Mapping[str, Any]) -> None:
    """Log that a run is late, and queue the operational event; raises LedgerError if it cannot be queued."""
    run = context["dag_run"]
    dag_id, run_id = str(run["dag_id"]), str(run.get("dag_run_id") or run.get("run_id"))
    log.error("ALARM: %s: run %s of %s is at work %g s after it was queued", NAME, run_id, dag_id, seconds)
    await asyncio.to_thread(_queue, dag_id, run_id, seconds)


def _queue(dag_id: str, run_id: str, seconds: float) -> None:
    from eventbridge.decision.operational_event import of_late_batch
    from eventbridge.ledger import Ledger
    from eventbridge.orchestrate.settings import airflow_settings

    with closing(Ledger.open(airflow_settings().ledger_url)) as ledger:
        ledger.queue_operational_events([of_late_batch(dag_id, run_id, seconds, ledger.now())])
