"""Listens to Airflow: publishes changes of DAG runs, task instances and assets to the bus EVENTBRIDGE_AIRFLOW_BUS.

Airflow calls the listener in the process that makes the change: the scheduler and the api-server for DAG runs, the
task's own process for task instances, the api-server and the triggerer for assets. A call builds one small event and
adds it to the outbox of the process. It never raises, and never waits for the bus.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.sdk.timezone import utcnow

from eventbridge.airflow.outbox import Outbox, no_fork
from eventbridge.airflow.settings import configured_settings
from eventbridge.airflow.state_events import (
    CHANGES_DROPPED,
    RUN_FAILED,
    ChangeFilter,
    Event,
    asset_changed_event,
    dag_run_event,
    dropped_event,
    task_instance_event,
)
from eventbridge.errors import EventBridgeError, RuleFileError, UserError

if TYPE_CHECKING:
    from eventbridge.config.settings import Settings
    from eventbridge.rules import RuleSet
    from eventbridge.sources.protocol import Publisher

log = logging.getLogger(__name__)

#: How long the event of a failed run waits for the transaction that made the run fail.
_COMMIT_SECONDS = 5.0
_POLL_SECONDS = 0.1


class StateListener:
    """Adds an event to the outbox for each change that the filter takes. Implements Airflow's listener hooks."""

    def __init__(self, changes: ChangeFilter, source: str, outbox: Outbox) -> None:
        self._changes = changes
        self._source = source
        self.outbox = outbox

    @hookimpl
    def on_dag_run_running(self, dag_run: Any, msg: str) -> None:
        """Publish that a run has started."""
        self._dag_run(dag_run, "running", msg)

    @hookimpl
    def on_dag_run_success(self, dag_run: Any, msg: str) -> None:
        """Publish that a run has succeeded."""
        self._dag_run(dag_run, "success", msg)

    @hookimpl
    def on_dag_run_failed(self, dag_run: Any, msg: str) -> None:
        """Publish that a run has failed."""
        self._dag_run(dag_run, "failed", msg)

    @hookimpl
    def on_task_instance_running(self, task_instance: Any) -> None:
        """Publish that a try has started, or continues after it was deferred."""
        self._task_instance(task_instance, "running")

    @hookimpl
    def on_task_instance_success(self, task_instance: Any) -> None:
        """Publish that a try has succeeded."""
        self._task_instance(task_instance, "success")

    @hookimpl
    def on_task_instance_skipped(self, task_instance: Any) -> None:
        """Publish that a task has skipped itself."""
        self._task_instance(task_instance, "skipped")

    @hookimpl
    def on_task_instance_failed(self, task_instance: Any, error: object) -> None:
        """Publish that a try has failed; the state is `up_for_retry` if another try follows."""
        with self._guarded():
            again = task_instance.state == "up_for_retry"
            self._task_instance(task_instance, "up_for_retry" if again else "failed", error)

    @hookimpl
    def on_asset_event_emitted(self, asset_event: Any) -> None:
        """Publish that an asset has changed."""
        with self._guarded():
            if self._changes.takes("asset.changed", asset_event.source_dag_id, asset_event.asset.uri):
                self.outbox.put(asset_changed_event(asset_event, self._source, utcnow()))

    def _dag_run(self, run: Any, state: str, reason: str) -> None:
        with self._guarded():
            if self._changes.takes(f"dag_run.{state}", run.dag_id):
                self.outbox.put(dag_run_event(run, state, reason, self._source, utcnow()))

    def _task_instance(self, ti: Any, state: str, error: object = None) -> None:
        with self._guarded():
            if self._changes.takes(f"task_instance.{state}", ti.dag_id):
                event = task_instance_event(ti, state, self._source, utcnow(), error, _mask_secrets)
                self.outbox.put(event)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever it is, Airflow must not notice
            self.outbox.drop(error)


def open_listener(settings: Settings, base_url: str) -> StateListener:
    """Return a listener with an outbox of its own. `base_url` is that of Airflow, the source of the events."""
    source = base_url.rstrip("/") or "/airflow"

    def report_dropped(count: int) -> Event:
        return dropped_event(count, f"{socket.gethostname()}/{os.getpid()}", source, utcnow())

    outbox = Outbox(BusPublisher(settings.airflow_bus or ""), report_dropped)
    return StateListener(ChangeFilter(settings.airflow_dags, settings.airflow_changes), source, outbox)


class BusPublisher:
    """Publishes events to an embedded bus of the rules, which it opens when it needs it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: Publisher | None = None

    def publish(self, events: Sequence[Event], ending: threading.Event) -> None:
        """Publish events, those of failed runs with the number of runs of their DAG that failed in an hour."""
        for event in events:
            if event["type"] == RUN_FAILED and "failed_runs_last_hour" not in event["data"]:
                event["data"]["failed_runs_last_hour"] = _failed_runs(event["data"], ending)
        with no_fork:
            try:
                self._open = self._open or self._open_bus()
                bodies = [json.dumps(event, default=str).encode() for event in events]
                self._open.publish([(body, event["subject"]) for body, event in zip(bodies, events, strict=True)])
            except Exception:
                self.close()
                raise
            _count_dropped(sum(each["data"]["count"] for each in events if each["type"] == CHANGES_DROPPED))

    def close(self) -> None:
        """Close the bus. The next call of `publish` reads the rules again."""
        with no_fork:
            bus, self._open = self._open, None
            if bus is not None:
                bus.close()

    def _open_bus(self) -> Publisher:
        from eventbridge.airflow.connections import airflow_connection
        from eventbridge.rules.find import find_bus
        from eventbridge.sources.open import open_publisher

        settings = configured_settings()
        bus = find_bus(_rules(settings), self._name)
        if bus.source.type != "embedded":
            raise UserError(f"EVENTBRIDGE_AIRFLOW_BUS names the bus {bus.name!r}, which is not of type embedded")
        return open_publisher(bus, settings, airflow_connection, utcnow)


def _rules(settings: Settings) -> RuleSet:
    from eventbridge.airflow.connections import airflow_connection
    from eventbridge.rules.load import load_rules
    from eventbridge.runtime.open import open_runtime

    if settings.rules_from == "files":  # without the ledger and the store, which take longer to open
        with suppress(RuleFileError):
            return load_rules(Path(settings.rules_folder), cache=settings.rule_cache)
    with closing(open_runtime(settings, airflow_connection)) as runtime:
        return runtime.rule_set()


def _count_dropped(count: int) -> None:
    """Add dropped changes to the total in the ledger, which `eventbridge status` and the metrics show."""
    if not count:
        return
    from eventbridge.ledger import Ledger

    try:
        with closing(Ledger.open(configured_settings().ledger_url)) as ledger:
            ledger.dropped_changes.add(count)
    except EventBridgeError as error:  # the event with the number is on the bus
        log.warning("%d dropped changes are missing in the total of the ledger: %s", count, error)


def _failed_runs(run: dict[str, Any], ending: threading.Event) -> int | None:
    """Return how many runs of a DAG have failed in the last hour, this one too; None if that cannot be determined.

    The scheduler calls the listener before it commits. This function waits until the failure of the run is committed,
    so that of runs which fail at the same time, in one or several schedulers, at least the last counts all.
    """
    deadline = time.monotonic() + _COMMIT_SECONDS
    try:
        while True:
            with no_fork:
                found = _failed_run_ids(run["dag_id"])
            if run["run_id"] in found or time.monotonic() > deadline or ending.wait(_POLL_SECONDS):
                return len(found | {run["run_id"]})
    except Exception as error:
        log.warning("failed_runs_last_hour of %s is unknown: %s", run["dag_id"], error)
        return None


def _failed_run_ids(dag_id: str) -> set[str]:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    since = utcnow() - timedelta(hours=1)
    query = select(DagRun.run_id).where(DagRun.dag_id == dag_id, DagRun.state == "failed", DagRun.end_date >= since)
    with create_session(scoped=False) as session:
        return set(session.scalars(query))


def _mask_secrets(text: str) -> str:
    from airflow.sdk._shared.secrets_masker import redact

    return str(redact(text))
