"""The DAG `eventbridge_send_heartbeat`: each minute once a connection is named, to a receiver, healthy or to its other
address.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from demo.receiver import Receiver
from orchestration.dag_files import DAGS

from eventbridge.airflow.dags.send_heartbeat import send_heartbeat
from eventbridge.airflow.tasks import PlainFailure
from eventbridge.config.settings import Settings
from eventbridge.control.heartbeat import stalled_work
from eventbridge.ledger import Ledger
from eventbridge.model.stat import Family, Sample


def test_a_heartbeat_is_sent_to_where_the_connection_says(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A healthy one goes to `secret_url`, others to `failure_url`; without the setting the DAG has no schedule and
    fails.
    """
    task: Any = DagBag(DAGS).dags["eventbridge_send_heartbeat"].get_task("send_heartbeat")
    assert send_heartbeat().schedule is None
    with pytest.raises(PlainFailure):
        task.python_callable()
    assert "EVENTBRIDGE_HEARTBEAT_CONNECTION" in caplog.messages[-1]

    monkeypatch.setenv("EVENTBRIDGE_HEARTBEAT_CONNECTION", "beats")
    assert send_heartbeat().timetable.expression == "* * * * *"  # type: ignore[attr-defined]
    with Receiver(tmp_path / "beats.jsonl", whole=True) as receiver:
        extra = {"secret_url": receiver.url("/healthy/beat"), "failure_url": receiver.url("/healthy/fail")}
        monkeypatch.setenv("AIRFLOW_CONN_BEATS", json.dumps({"conn_type": "http", "extra": extra}))
        task.python_callable()
        ledger = Ledger.open(Settings.from_mapping(os.environ).ledger_url)
        ledger.ingestion.stop("the disk is short", "disk")
        ledger.close()
        task.python_callable()

        assert [each["path"] for each in receiver.requests()] == ["/healthy/beat", "/healthy/fail"]


def test_a_stalled_runner_is_reported() -> None:
    """One that has events and moved nothing for 20 minutes, and one whose batch is old; not one without events."""
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    runners = {"still": (5.0, 21), "moving": (5.0, 19), "idle": (0.0, 90)}

    def family(name: str, samples: list[Sample]) -> tuple[str, Family]:
        return name, Family(name, "gauge", "", (), tuple(samples))

    families = dict(
        [
            family("lag_events", [Sample((name, "orders"), lag) for name, (lag, _) in runners.items()]),
            family(
                "runner_moved_timestamp_seconds",
                [
                    Sample((name, "orders"), (now - timedelta(minutes=minutes)).timestamp())
                    for name, (_, minutes) in runners.items()
                ],
            ),
            family(
                "open_batch_age_seconds",
                [
                    Sample(("slow", "normal"), 1_860.0),
                    Sample(("quick", "normal"), 30.0),
                    Sample(("", "retry"), 2_400.0),
                ],
            ),
        ]
    )

    assert stalled_work(now, families) == [
        "the runner still has committed nothing for 21 minutes, and events are waiting",
        "a normal batch of the runner slow has not been committed for 31 minutes",
        "a retry batch has not been committed for 40 minutes",
    ]
