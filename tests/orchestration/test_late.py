"""Late batches are reported from the ledger, and no DAG has an Airflow deadline."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG

from eventbridge.airflow.stuck import report_late_batches
from eventbridge.airflow.watch import Watch
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.model.batch import Batch, BatchState
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def runtime(home: Path) -> Iterator[Runtime]:
    """A runtime with a fixed clock."""
    settings = Settings(home=home, rules_folder=home.parent / "rules", batch_late_after=90)
    with closing(open_runtime(settings, connections_from_environment({}), lambda: NOW)) as runtime:
        yield runtime


def planned(runtime: Runtime, runner: str, seconds_ago: float, state: BatchState = "planned") -> Batch:
    """Plan an empty batch some seconds ago."""
    batch = Batch(f"of-{runner}", "normal", runner, "orders", state, "cafe", NOW - timedelta(seconds=seconds_ago))
    assert runtime.ledger.batches.plan(batch, [])
    return batch


def test_no_dag_has_a_deadline(dags: dict[str, DAG]) -> None:
    """Airflow 3.3 cannot clear a run that was marked failed within its deadline (500), so no DAG has one."""
    assert {name for name, dag in dags.items() if dag.deadline} == set()


def test_a_late_batch_is_reported_once(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """Only a batch older than the setting gets an alarm in the log and one event `batch.late`."""
    planned(runtime, "slow", 91)
    planned(runtime, "quick", 89)
    with caplog.at_level(logging.ERROR):
        known = report_late_batches(runtime, NOW, ())
        assert report_late_batches(runtime, NOW, known) == known == {"of-slow"}

    (event,) = runtime.ledger.operational_events.waiting(9)
    assert (event.type, event.subject) == ("batch.late", "slow")
    assert event.time == NOW - timedelta(seconds=1)
    assert event.data == {
        "batch_id": "of-slow",
        "kind": "normal",
        "runner": "slow",
        "state": "planned",
        "planned_at": "2026-03-01T11:58:29+00:00",
        "late_after_seconds": 90.0,
    }
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("ALARM: the normal batch of-slow of runner slow is late: planned at 11:58:29 UTC")


def test_the_watcher_reports_late_batches(runtime: Runtime) -> None:
    """A committed batch, or the open batch of a streaming task, is not late."""
    planned(runtime, "orders", 91, "open")
    watch = Watch(runtime)
    watch.check()
    assert runtime.ledger.operational_events.waiting(9) == []

    planned(runtime, "night", 91)
    Watch(runtime).check()
    assert [each.subject for each in runtime.ledger.operational_events.waiting(9)] == ["night"]
