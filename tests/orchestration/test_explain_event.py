"""The task of the DAG `eventbridge_explain_event`: it logs the result as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.execution_time.context import set_current_context

from eventbridge.airflow.settings import airflow_settings
from eventbridge.airflow.tasks import PlainFailure
from eventbridge.config.connection import connections_from_environment
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.runtime.open import open_runtime
from eventbridge.sources.embedded.bus import EmbeddedBus

DAGS = Path(__file__).parents[2] / "dags"


@pytest.fixture
def landed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One event of the bus `orders` in the archive."""
    monkeypatch.setenv("EVENTBRIDGE_DISK_MIN_FREE_SIZE", "0")
    settings = airflow_settings()
    runtime = open_runtime(settings, connections_from_environment({}))
    event = json.dumps({"specversion": "1.0", "id": "o-1", "source": "/shop", "type": "order.placed"}).encode()
    with EmbeddedBus(settings.home / "bus", "orders", topics=("events",), clock=lambda: datetime.now(UTC)) as bus:
        bus.publish([(event, None)])
    buffer(runtime, listen(runtime, "orders") or "")
    runtime.close()


def run(**filled_in: Any) -> None:
    """Run the task with a form."""
    dag = DagBag(DAGS).dags["eventbridge_explain_event"]
    (task,) = dag.tasks
    form = {name: dag.params.get_param(name).value for name in dag.params} | filled_in
    with set_current_context({"params": form}):  # type: ignore[typeddict-item]
        task.python_callable()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("landed")
def test_the_log_has_the_response(caplog: pytest.LogCaptureFixture) -> None:
    """Its offset and the result of each rule, like `eventbridge events why --json`."""
    with caplog.at_level(logging.INFO):
        run(event_id="o-1")

    (response,) = (json.loads(each.message) for each in caplog.records if each.message.startswith("{"))
    (event,) = response["events"]
    assert (event["position"]["bus"], event["status"]) == ("orders", "valid")
    assert all({"met", "path", "values"} <= set(each) for rule in event["rules"] for each in rule["conditions"])


@pytest.mark.usefixtures("landed")
def test_an_unknown_event_fails_the_task_without_a_retry(caplog: pytest.LogCaptureFixture) -> None:
    """The error names the event, and the task is not retried."""
    with pytest.raises(PlainFailure):
        run(event_id="nobody")
    assert "no event 'nobody'" in caplog.messages[-1]
