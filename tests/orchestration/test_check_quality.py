"""The task of the DAG `eventbridge_check_quality`: it checks the hour before the run, or the form's hour."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.execution_time.context import set_current_context

from eventbridge.config.settings import Settings
from eventbridge.ledger import Ledger
from eventbridge.quality.record import hour_of

DAGS = Path(__file__).parents[2] / "dags"

#: Great Expectations imports what Python 3.11 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:module 'sre_:DeprecationWarning")


@dataclass
class _Run:
    """The fields of a run that the task reads."""

    run_after: datetime


class _Instance:
    """The fields of a task instance that the task reads."""

    dag_id, run_id, task_id, map_index = "eventbridge_check_quality", "scheduled", "eventbridge_check_quality", -1


def checked(home: Path) -> list[datetime]:
    """Return the checked hours."""
    ledger = Ledger.open(Settings.from_mapping(os.environ).ledger_url)
    try:
        return sorted(check.hour for check in ledger.quality.checks())
    finally:
        ledger.close()


def test_the_task_checks_the_hour_before_its_run_however_often_it_runs(home: Path) -> None:
    """A late or retried run checks the hour for which it was created; a form may name another one."""
    task: Any = DagBag(DAGS).dags["eventbridge_check_quality"].get_task("check_quality")
    after = datetime.now(UTC) - timedelta(hours=5)
    for hour in (None, None, "2026-03-01T12:00:00+00:00"):
        context: Any = {"ti": _Instance(), "dag_run": _Run(after), "params": {"hour": hour}}
        with set_current_context(context):
            task.python_callable()

    assert checked(home) == [datetime(2026, 3, 1, 12, tzinfo=UTC), hour_of(after) - timedelta(hours=1)]
