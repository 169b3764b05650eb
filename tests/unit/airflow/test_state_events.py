"""Events about changes in Airflow: their type, id and data, and which changes are published."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from eventbridge.airflow.state_events import (
    ERROR_LENGTH,
    ChangeFilter,
    asset_changed_event,
    dag_run_event,
    task_instance_event,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEGAN = NOW - timedelta(seconds=90)
DAG = SimpleNamespace(tags={"team:sales", "hourly"}, owner="sales")


def a_run(**fields: Any) -> Any:
    """Return what a DAG run of Airflow's database has."""
    shared = {"logical_date": None, "queued_at": BEGAN, "start_date": BEGAN, "end_date": NOW, "conf": {"password": "x"}}
    return SimpleNamespace(
        **{"dag": DAG, "dag_id": "orders", "run_id": "r1", "run_type": "manual", "clear_number": 0, **shared, **fields}
    )


def a_try(**fields: Any) -> Any:
    """Return what a task instance has in the process of its task."""
    task = SimpleNamespace(task_type="PythonOperator", dag=DAG, owner="sales")
    names = {"dag_id": "orders", "run_id": "r1", "task_id": "load", "map_index": -1, "try_number": 1, "max_tries": 2}
    return SimpleNamespace(**{"task": task, **names, "start_date": BEGAN, "end_date": NOW, **fields})


def test_the_event_of_a_failed_run() -> None:
    """It has names, tags, owner, dates, duration and the reason, without the conf of the run."""
    event = dag_run_event(a_run(), "failed", "task_failure", "/airflow", NOW)

    assert event.pop("id")
    assert event == {
        "specversion": "1.0",
        "source": "/airflow",
        "type": "org.apache.airflow.dag_run.failed",
        "subject": "orders/r1",
        "time": "2026-03-01T12:00:00+00:00",
        "data": {
            "dag_id": "orders",
            "run_id": "r1",
            "run_type": "manual",
            "state": "failed",
            "reason": "task_failure",
            "tags": ["hourly", "team:sales"],
            "owner": "sales",
            "queued_at": "2026-03-01T11:58:30+00:00",
            "start_date": "2026-03-01T11:58:30+00:00",
            "end_date": "2026-03-01T12:00:00+00:00",
            "duration": 90.0,
        },
    }


def test_a_started_run_has_no_end() -> None:
    """A cleared run still has the end of its last attempt, which is not that of this one."""
    data = dag_run_event(a_run(), "running", "started", "/airflow", NOW)["data"]

    assert {"end_date", "duration"} & set(data) == set()


def test_the_same_change_has_the_same_id_and_another_change_another_id() -> None:
    """A change that is published again is the same event; one of a cleared run or a further try is not."""
    later = NOW + timedelta(seconds=5)
    ids = [
        dag_run_event(a_run(), "failed", "task_failure", "/airflow", NOW)["id"],
        dag_run_event(a_run(end_date=later), "failed", "timed_out", "/airflow", later)["id"],
        dag_run_event(a_run(clear_number=1), "failed", "task_failure", "/airflow", NOW)["id"],
        dag_run_event(a_run(), "success", "success", "/airflow", NOW)["id"],
        task_instance_event(a_try(), "failed", "/airflow", NOW)["id"],
        task_instance_event(a_try(), "failed", "/airflow", later)["id"],
        task_instance_event(a_try(try_number=2), "failed", "/airflow", NOW)["id"],
        task_instance_event(a_try(map_index=1), "failed", "/airflow", NOW)["id"],
    ]

    assert ids[0] == ids[1]
    assert ids[4] == ids[5]
    assert len(set(ids)) == 6


def test_the_error_of_a_try_is_masked_and_short() -> None:
    """Airflow's masker removes secrets, and a whole response in an exception does not become a large event."""
    error = ValueError("password=secret " + "x" * 10_000)
    event = task_instance_event(
        a_try(), "up_for_retry", "/airflow", NOW, error, lambda text: text.replace("secret", "***")
    )

    assert event["type"] == "org.apache.airflow.task_instance.up_for_retry"
    assert event["data"]["error_type"] == "ValueError"
    assert event["data"]["error"].startswith("password=*** xxx")
    assert len(event["data"]["error"]) == ERROR_LENGTH


def test_a_long_secret_is_masked_although_the_error_is_cut() -> None:
    """Half a secret is one too: it is removed before the text is cut."""
    secret = "".join(f"K{number:05d}" for number in range(500))
    error = ValueError("the server refuses " + secret)
    event = task_instance_event(a_try(), "failed", "/airflow", NOW, error, lambda text: text.replace(secret, "***"))

    assert event["data"]["error"] == "the server refuses ***"


def test_a_task_instance_of_the_database_has_no_task() -> None:
    """In the api-server, only what the database has is known."""
    data = task_instance_event(a_try(task=None), "failed", "/airflow", NOW, "set to failed")["data"]

    assert (data["tags"], data["error"]) == ([], "set to failed")
    assert {"operator", "owner", "error_type"} & set(data) == set()


def changed(extra: object) -> Any:
    """Return what Airflow passes for an asset that changed."""
    return SimpleNamespace(
        asset=SimpleNamespace(name="orders", uri="s3://lake/orders", group="asset"),
        extra=extra,
        **dict.fromkeys(("source_dag_id", "source_run_id", "source_task_id"), "x"),
        source_map_index=-1,
        partition_key=None,
    )


def nested(depth: int) -> object:
    found: object = 1
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({("a", "b"): 1}, "TypeError: keys must be str"),
        ({"x": float("nan")}, "ValueError: Out of range float values"),
        (nested(100_000), "RecursionError: maximum recursion depth"),
    ],
    ids=["a key that is no text", "not a number", "nested too deep"],
)
def test_an_extra_that_is_not_json_does_not_keep_the_event_back(extra: object, reason: str) -> None:
    """A watcher may report any object; the bus would refuse it, and each event beside it, for ever."""
    data = json.loads(json.dumps(asset_changed_event(changed(extra), "/airflow", NOW)))["data"]

    assert "extra" not in data
    assert data["extra_error"].startswith(reason)
    assert data["asset"]["name"] == "orders"


def test_the_event_of_an_asset_has_its_extra() -> None:
    """A rule can compare what the task reported, such as a number of rows."""
    event = asset_changed_event(changed({"rows": 5000}), "/airflow", NOW)

    assert (event["type"], event["subject"]) == ("org.apache.airflow.asset.changed", "orders")
    assert event["data"]["extra"] == {"rows": 5000}
    assert "partition_key" not in event["data"]


@pytest.mark.parametrize(
    ("change", "dag_id", "asset_uri", "taken"),
    [
        ("dag_run.failed", "sales_orders", "", True),
        ("dag_run.running", "sales_orders", "", False),
        ("asset.changed", "sales_orders", "s3://lake/orders", True),
        ("dag_run.failed", "finance_orders", "", False),
        ("asset.changed", None, "s3://lake/orders", False),
    ],
)
def test_a_filter_takes_changes_by_dag_and_state(change: str, dag_id: str | None, asset_uri: str, taken: bool) -> None:
    """Patterns of DAG ids and of changes must both match."""
    assert ChangeFilter(("sales_*", "hr"), ("*.failed", "asset.changed")).takes(change, dag_id, asset_uri) is taken


def test_changes_of_eventbridge_itself_are_never_published() -> None:
    """A delivery would cause events, whose deliveries would cause events, forever."""
    everything = ChangeFilter()

    assert everything.takes("dag_run.failed", "orders")
    assert everything.takes("asset.changed", None, "s3://lake/orders")
    assert not everything.takes("dag_run.failed", "eventbridge_deliver_orders")
    assert not everything.takes("asset.changed", None, "eventbridge://events_orders")
