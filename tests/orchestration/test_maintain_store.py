"""The task of the DAG `eventbridge_maintain_store`, on a real ledger and store."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eventbridge.airflow.dags.maintain_store import maintain
from eventbridge.airflow.tasks import PlainFailure
from eventbridge.config.settings import Settings
from eventbridge.errors import NotFoundError
from eventbridge.event.ids import new_batch_id
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Partition
from eventbridge.runtime.identity import claim_runner
from eventbridge.runtime.open import open_runtime
from eventbridge.store import layout


@pytest.fixture
def old(home: Path) -> Batch:
    """A batch that was committed two years ago and is not the last one of its runner."""
    runtime = open_runtime(Settings.from_mapping({"EVENTBRIDGE_HOME": str(home)}), lambda name: pytest.fail(name))
    claim_runner(runtime, "orders")
    runtime.ledger.offsets.register("orders", "orders", {Partition("events", "", 0): 0})
    made = []
    for days in (730, 1):
        at = datetime.now(UTC) - timedelta(days=days)
        made.append(Batch(new_batch_id(at), "normal", "orders", "orders", "planned", "cafe", at))
        assert runtime.ledger.batches.plan(made[-1], [])
        runtime.ledger.batches.move(made[-1].batch_id, "planned", "settling")
        assert runtime.ledger.settlement.commit(made[-1].batch_id, "orders", [], at, "000000")
        runtime.ledger.settlement.mark_bus_committed(made[-1].batch_id)
        runtime.store.put(layout.manifest(at, made[-1].batch_id), b"{}")
    runtime.close()
    return made[0]


def test_the_task_removes_and_logs_what_is_past_its_retention(
    home: Path, old: Batch, caplog: pytest.LogCaptureFixture
) -> None:
    """It uses the settings of Airflow's environment."""
    with caplog.at_level(logging.INFO):
        maintain.function()

    runtime = open_runtime(Settings.from_mapping({"EVENTBRIDGE_HOME": str(home)}), lambda name: pytest.fail(name))
    with pytest.raises(NotFoundError):
        runtime.ledger.batches.get(old.batch_id)
    assert not runtime.store.exists(layout.manifest(old.planned_at, old.batch_id))
    assert len(runtime.ledger.batches.find()) == 1
    runtime.close()
    assert "'manifest': 1" in caplog.text


def test_a_ledger_of_another_store_fails_the_task_without_a_retry(
    home: Path, old: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It removes nothing, and is not retried, as a person must act."""
    monkeypatch.setenv("EVENTBRIDGE_STORE_URI", (tmp_path / "empty").as_uri())

    with pytest.raises(PlainFailure):
        maintain.function()
    assert "the store was deleted or replaced" in caplog.messages[-1]
