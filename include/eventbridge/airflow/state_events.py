"""Builds CloudEvents about changes of Airflow's DAG runs, task instances and assets. Pure; imports no Airflow.

The objects differ by process: Airflow passes its database models in the scheduler and the api-server, and the classes
of its task SDK in a task's process. Only attributes that both have are read, or the attribute counts as unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from eventbridge.airflow.names import PREFIX

#: The prefix of the type of each event.
TYPE_PREFIX = "org.apache.airflow."

#: The type of the events for which `failed_runs_last_hour` is determined before they are published.
RUN_FAILED = f"{TYPE_PREFIX}dag_run.failed"
CHANGES_DROPPED = f"{TYPE_PREFIX}changes.dropped"
ASSET_CHANGED = f"{TYPE_PREFIX}asset.changed"

#: The maximum length of the text of an error.
ERROR_LENGTH = 1_000

#: The maximum length of the text that is masked, because an exception may hold a whole response. It is longer than any
#: secret: half a secret would not be recognised.
_MASKED_LENGTH = 50_000

Event = dict[str, Any]


@dataclass(frozen=True)
class ChangeFilter:
    """Decides which changes are published. Changes of EventBridge's own DAGs and assets never are.

    An empty tuple of patterns takes everything.
    """

    dags: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def takes(self, change: str, dag_id: str | None, asset_uri: str = "") -> bool:
        """Return whether to publish a change such as `dag_run.failed`. `dag_id` is None for an asset without a DAG."""
        if (dag_id or "").startswith(PREFIX) or asset_uri.startswith("eventbridge://"):
            return False
        return _matches(change, self.changes) and _matches(dag_id or "", self.dags)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, each) for each in patterns)


def dag_run_event(run: Any, state: str, reason: str, source: str, now: datetime) -> Event:
    """Return the event of a DAG run that entered a state. Its `conf` is left out, because it may hold secrets."""
    dag, ended = getattr(run, "dag", None), state != "running"
    data = {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "run_type": _text(run.run_type),
        "state": state,
        "reason": reason,
        "tags": _tags(dag),
        "owner": getattr(dag, "owner", None),
        "team": getattr(run, "_team_name", None),
        "logical_date": run.logical_date,
        "queued_at": run.queued_at,
        "start_date": run.start_date,
        "end_date": run.end_date if ended else None,
        "duration": _seconds(run.start_date, run.end_date) if ended else None,
    }
    identity = (run.dag_id, run.run_id, run.clear_number)
    return _event("dag_run", state, identity, f"{run.dag_id}/{run.run_id}", data, source, now)


def task_instance_event(
    ti: Any, state: str, source: str, now: datetime, error: object = None, mask: Callable[[str], str] = str
) -> Event:
    """Return the event of a try of a task instance that entered a state; `mask` removes secrets from its error."""
    task, ended = getattr(ti, "task", None), state != "running"
    data = {
        "dag_id": ti.dag_id,
        "run_id": ti.run_id,
        "task_id": ti.task_id,
        "map_index": ti.map_index,
        "try_number": ti.try_number,
        "max_tries": ti.max_tries,
        "state": state,
        "operator": getattr(task, "task_type", None),
        "tags": _tags(getattr(task, "dag", None)),
        "owner": getattr(task, "owner", None),
        "start_date": ti.start_date,
        "end_date": ti.end_date if ended else None,
        "duration": _seconds(ti.start_date, ti.end_date) if ended else None,
        "error_type": type(error).__name__ if isinstance(error, BaseException) else None,
        "error": None if error is None else mask(str(error)[:_MASKED_LENGTH])[:ERROR_LENGTH],
    }
    identity = (ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.try_number)
    return _event("task_instance", state, identity, f"{ti.dag_id}/{ti.run_id}", data, source, now)


def asset_changed_event(emitted: Any, source: str, now: datetime) -> Event:
    """Return the event of an asset that changed, with the `extra` that the task gave it.

    Airflow passes no id of the change, so its id depends on the time. An `extra` that is not JSON is left out.
    """
    extra, extra_error = _json(emitted.extra)
    data = {
        "asset": {"name": emitted.asset.name, "uri": emitted.asset.uri, "group": emitted.asset.group},
        "extra": extra,
        "extra_error": extra_error,
        "source_dag_id": emitted.source_dag_id,
        "source_run_id": emitted.source_run_id,
        "source_task_id": emitted.source_task_id,
        "source_map_index": emitted.source_map_index,
        "partition_key": emitted.partition_key,
    }
    identity = (emitted.asset.uri, emitted.source_dag_id, emitted.source_run_id, emitted.source_task_id, now)
    return _event("asset", "changed", identity, emitted.asset.name, data, source, now)


def dropped_event(count: int, process: str, source: str, now: datetime) -> Event:
    """Return the event that reports how many changes a process could not publish."""
    return _event("changes", "dropped", (process, now), process, {"count": count, "process": process}, source, now)


def _event(
    kind: str,
    state: str,
    identity: tuple[object, ...],
    subject: str,
    data: Mapping[str, Any],
    source: str,
    now: datetime,
) -> Event:
    written = "\n".join(map(str, (kind, state, *identity)))
    return {
        "specversion": "1.0",
        "id": hashlib.blake2b(written.encode(), digest_size=16).hexdigest(),
        "source": source,
        "type": f"{TYPE_PREFIX}{kind}.{state}",
        "subject": subject,
        "time": now.isoformat(),
        "data": {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in data.items()
            if value is not None
        },
    }


def _json(value: object) -> tuple[Any, str | None]:
    """Return a value as JSON has it, or why JSON cannot; the bus would refuse all events beside such a value."""
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False)), None
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"{type(error).__name__}: {error}"[:ERROR_LENGTH]


def _text(state: object) -> str:
    return str(getattr(state, "value", state))


def _tags(dag: Any) -> list[str]:
    return sorted(map(str, getattr(dag, "tags", None) or ()))


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()
