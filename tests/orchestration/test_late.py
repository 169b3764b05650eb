"""Airflow's alert `batch is late`: which runs have it, and what it tells."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk._shared.module_loading import accepts_context, import_string
from airflow.sdk.definitions.callback import AsyncCallback

from eventbridge.config.settings import Settings
from eventbridge.ledger import Ledger
from eventbridge.orchestrate.dags import airflow_dags
from eventbridge.orchestrate.late import late_alert


def test_runs_that_move_a_batch_have_the_alert(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the runners, retries, redrives and replays, and no others; the setting says when."""
    monkeypatch.setenv("EVENTBRIDGE_BATCH_LATE_SECONDS", "90s")
    alerts = {name: dag.deadline for name, dag in airflow_dags().items()}

    late = {name for name, alert in alerts.items() if alert}
    assert late == {"deliver_orders", "deliver_night", "retry_deliveries", "redrive_dead_letters", "replay_events"}
    (alert,) = alerts["deliver_orders"]
    assert (alert.name, alert.interval) == ("batch is late", timedelta(seconds=90))


def test_the_alert_logs_and_queues_one_operational_event(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Called as the triggerer calls it, by its path and with the run; told twice it is one event."""
    home.mkdir()
    callback = late_alert(Settings()).callback
    assert isinstance(callback, AsyncCallback)
    tell = import_string(callback.path)
    assert accepts_context(tell)
    run = {"dag_id": "deliver_orders", "dag_run_id": "scheduled__2026"}
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            asyncio.run(tell(**callback.kwargs, context={"dag_run": run}))

    with closing(Ledger.open(f"sqlite:///{home}/ledger.sqlite")) as ledger:
        (event,) = ledger.waiting_operational_events(9)
    assert (event.type, event.subject) == ("batch.late", "deliver_orders")
    assert event.data == {"dag_id": "deliver_orders", "run_id": "scheduled__2026", "late_after_seconds": 120.0}
    assert "ALARM: batch is late: run scheduled__2026 of deliver_orders" in caplog.text
