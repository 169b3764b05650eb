"""The listener in Airflow's own plug-in system, on a real embedded bus."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.listeners.listener import ListenerManager
from airflow.listeners.spec import asset, dagrun
from airflow.sdk._shared.listeners.spec import taskinstance
from sqlalchemy import delete

from eventbridge.airflow import plugin
from eventbridge.airflow.listener import StateListener, _failed_runs, open_listener
from eventbridge.airflow.settings import listener_settings
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.testing.sources import messages_of
from eventbridge.views.metrics import metrics
from eventbridge.views.status import status

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

#: The maximum time that Airflow spends in the listener for a change.
LIMIT_SECONDS = 0.001


@pytest.fixture
def listener(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateListener]:
    """A listener of all changes, which publishes to the bus `orders`."""
    monkeypatch.setenv("EVENTBRIDGE_AIRFLOW_BUS", "orders")
    listener = open_listener(listener_settings(), "https://airflow.example/")
    yield listener
    listener.outbox.close()


def call(listener: StateListener, hook: str, **arguments: Any) -> None:
    """Call a hook as Airflow does."""
    manager = ListenerManager()
    for spec in (asset, dagrun, taskinstance):
        manager.add_hookspecs(spec)
    manager.add_listener(listener)
    getattr(manager.hook, hook)(**arguments)


def a_try(number: int = 1, **fields: Any) -> Any:
    """Return what a task instance has in the process of its task."""
    task = SimpleNamespace(task_type="PythonOperator", owner="sales", dag=SimpleNamespace(tags={"sales"}))
    return SimpleNamespace(
        **{"task": task, "dag_id": "load_orders", "run_id": f"r{number}", "task_id": "load", "map_index": -1},
        **{"try_number": 1, "max_tries": 2, "start_date": NOW, "end_date": NOW + timedelta(seconds=1)},
        **{"state": "failed", **fields},
    )


def published(home: Path) -> list[dict[str, Any]]:
    """Return all events on the bus."""
    bus = EmbeddedBus(home / "bus", "orders", topics=("events",), clock=lambda: datetime.now(UTC))
    with closing(bus):
        blocks = [bus.read(partition, bus.earliest(partition), bus.end(partition)) for partition in bus.partitions()]
        return [json.loads(message.body) for each in blocks for message in messages_of(each)]


def test_the_listener_is_off_by_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without EVENTBRIDGE_AIRFLOW_BUS Airflow has no listener to call; with it, it has one."""
    assert plugin._listeners() == []

    monkeypatch.setenv("AIRFLOW__EVENTBRIDGE__AIRFLOW_BUS", "orders")
    (found,) = plugin._listeners()
    assert isinstance(found, StateListener)


def test_an_invalid_setting_turns_the_listener_off(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow starts; its log names the setting and the changes that exist."""
    monkeypatch.setenv("EVENTBRIDGE_AIRFLOW_BUS", "orders")
    monkeypatch.setenv("EVENTBRIDGE_AIRFLOW_CHANGES", "dag_run.fialed")

    assert plugin._listeners() == []
    assert "'dag_run.fialed' names none of the changes: dag_run.running, " in caplog.text


def test_changes_become_events_on_the_bus(home: Path, listener: StateListener) -> None:
    """Airflow's hooks publish task instances and assets; the source is the URL of Airflow."""
    changed = SimpleNamespace(
        asset=SimpleNamespace(name="orders", uri="s3://lake/orders", group="asset"),
        extra={"rows": 5000},
        **{"source_dag_id": "load_orders", "source_run_id": "r1", "source_task_id": "load", "source_map_index": -1},
        partition_key=None,
    )
    call(listener, "on_task_instance_running", previous_state=None, task_instance=a_try())
    call(listener, "on_task_instance_failed", previous_state=None, task_instance=a_try(), error=ValueError("no rows"))
    again = a_try(state="up_for_retry")
    call(listener, "on_task_instance_failed", previous_state=None, task_instance=again, error=None)
    call(listener, "on_asset_event_emitted", asset_event=changed)
    listener.outbox.close()

    events = published(home)
    assert {event["source"] for event in events} == {"https://airflow.example"}
    assert sorted(event["type"].removeprefix("org.apache.airflow.") for event in events) == [
        "asset.changed",
        "task_instance.failed",
        "task_instance.running",
        "task_instance.up_for_retry",
    ]


def test_a_change_that_cannot_be_read_does_not_reach_airflow(listener: StateListener) -> None:
    """The exception is counted and logged."""
    call(listener, "on_dag_run_success", dag_run=SimpleNamespace(dag_id="load_orders"), msg="")

    assert listener.outbox.dropped == 1


def test_dropped_changes_of_all_processes_are_counted_in_the_ledger(
    home: Path, listener: StateListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the bus takes events again, `eventbridge status` and the metrics show the number, beside the event."""
    other = open_listener(listener_settings(), "https://airflow.example/")
    for each, dropped in ((listener, 2), (other, 1)):
        for _ in range(dropped):
            each.outbox.drop(ValueError("it cannot be built"))
        call(each, "on_task_instance_success", task_instance=a_try(dropped), previous_state=None)
        each.outbox.close(60)

    with closing(open_runtime(Settings.from_mapping(os.environ), connections_from_environment({}))) as runtime:
        total = status(runtime).airflow_changes_dropped
        (family,) = [each for each in metrics(runtime) if each.name == "eventbridge_airflow_changes_dropped_total"]
    assert total is not None
    assert total.changes == 3
    assert [sample.value for sample in family.samples] == [3]
    assert sorted(event["data"]["count"] for event in published(home) if event["type"].endswith("dropped")) == [1, 2]


@pytest.fixture
def save_run() -> Iterator[Callable[[str, str, datetime], None]]:
    """Yield a function that commits a run of `load_orders` with a state and its end to Airflow's database."""
    from airflow import settings
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    import_all_models()
    Base.metadata.create_all(settings.engine)

    def save(run_id: str, state: str, ended: datetime) -> None:
        with create_session(scoped=False) as session:
            run = DagRun(dag_id="load_orders", run_id=run_id, run_type="manual", state=state, run_after=NOW)
            run.end_date = ended
            session.add(run)

    yield save
    with create_session(scoped=False) as session:
        session.execute(delete(DagRun))


def test_failures_of_an_hour_are_counted_after_the_run_is_committed(save_run: Callable[..., None]) -> None:
    """The number has what other schedulers have committed, and waits for the commit of the scheduler itself."""
    now = datetime.now(UTC)
    save_run("r1", "failed", now - timedelta(minutes=50))
    save_run("r2", "success", now)
    save_run("old", "failed", now - timedelta(minutes=70))

    def commit_all() -> None:
        save_run("r3", "failed", now)
        save_run("r4", "failed", now)

    commit = threading.Timer(0.3, commit_all)
    commit.start()
    counted = _failed_runs({"dag_id": "load_orders", "run_id": "r4"}, threading.Event())
    commit.join()

    assert counted == 3


def test_failures_are_counted_at_once_when_the_process_ends(save_run: Callable[..., None]) -> None:
    """The run counts, although it is not committed yet."""
    save_run("r1", "failed", datetime.now(UTC))
    ending = threading.Event()
    ending.set()

    assert _failed_runs({"dag_id": "load_orders", "run_id": "r2"}, ending) == 2


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_that_fork_while_events_are_published_lose_none(home: Path, listener: StateListener) -> None:
    """No child shares the open file of its parent: all of them publish to it at the same time."""
    children = []
    for number in range(20):
        call(listener, "on_task_instance_running", task_instance=a_try(number), previous_state=None)
        child = os.fork()
        if child == 0:
            call(listener, "on_task_instance_success", task_instance=a_try(number), previous_state=None)
            listener.outbox.close(60)
            os._exit(listener.outbox.dropped)
        children.append(child)
        time.sleep(0.02)  # the thread publishes some of them before the next fork
    statuses = [os.waitpid(child, 0)[1] for child in children]
    listener.outbox.close(60)

    assert statuses == [0] * 20
    found = {(event["data"]["run_id"], event["data"]["state"]) for event in published(home)}
    assert found == {(f"r{number}", state) for number in range(20) for state in ("running", "success")}


def test_the_listener_costs_airflow_less_than_a_millisecond(home: Path, listener: StateListener) -> None:
    """The median call, while the thread publishes, and the mean of the CPU time of the thread that calls."""
    manager = ListenerManager()
    manager.add_hookspecs(taskinstance)
    manager.add_listener(listener)
    took, cpu = [], time.thread_time()
    for number in range(2_000):
        began = time.perf_counter()
        manager.hook.on_task_instance_failed(
            previous_state=None, task_instance=a_try(number), error=ValueError("no rows " * 1_000)
        )
        took.append(time.perf_counter() - began)
    cpu = time.thread_time() - cpu
    listener.outbox.close(60)

    assert statistics.median(took) < LIMIT_SECONDS
    assert cpu / len(took) < LIMIT_SECONDS
    assert len(published(home)) == 2_000
