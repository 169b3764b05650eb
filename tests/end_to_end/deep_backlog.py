"""A backlog of a streaming runner on Airflow: delivered as one batch by Spark and mapped pushes, followed by a
streaming task.

Part of `make test-deep`.
"""

from __future__ import annotations

from typing import Any

import pytest
from end_to_end.running import RunningEnvironment

pytestmark = pytest.mark.timeout(900)

HEAP = "heap"
DAG_ID = f"eventbridge_deliver_{HEAP}"
PATHS = ("/healthy/heap", "/healthy/heap-archive")
#: More than the runner's `backlog` of 2,000, and less than a batch takes.
_BACKLOG = 6_000
_MINUTES = 300.0


def test_a_backlog_is_one_batch_of_the_stages_and_then_events_stream_again(heaped: RunningEnvironment) -> None:
    """Before and after it a streaming task delivers, and its runs start no other task; each target gets every event
    once.
    """
    heaped.publish(HEAP, range(1))
    heaped.until("a streaming task delivers", lambda: took(heaped, 1))
    heaped.airflow.call("PATCH", f"/dags/{DAG_ID}", json={"is_paused": True})
    heaped.until("no task is at work", lambda: not at_work(heaped))
    assert heaped.runtime.ledger.streaming.lease(HEAP) is None
    heaped.publish(HEAP, range(1, 1 + _BACKLOG))
    heaped.airflow.call("PATCH", f"/dags/{DAG_ID}", json={"is_paused": False})

    heaped.until("the backlog is delivered", lambda: took(heaped, 1 + _BACKLOG), _MINUTES)
    heaped.until("its batch is committed", lambda: heaped.runtime.ledger.batches.unfinished(HEAP) is None, _MINUTES)
    (large,) = [
        each for each in heaped.runtime.ledger.batches.find(limit=None, runner=HEAP) if size(heaped, each) > 1_000
    ]
    (run,) = [each for each in heaped.runs(DAG_ID) if "route" in done_by(heaped, each)]
    done = done_by(heaped, run)
    for number in range(1 + _BACKLOG, 11 + _BACKLOG):
        heaped.publish(HEAP, range(number, number + 1))
        heaped.until("it is delivered", lambda number=number: took(heaped, number + 1))
        assert heaped.runtime.ledger.streaming.lease(HEAP) is not None, "a streaming task delivered it"
    heaped.until("its streaming task ends", lambda: heaped.runtime.ledger.streaming.lease(HEAP) is None)
    heaped.until_settled()

    assert size(heaped, large) == _BACKLOG
    assert {"streaming", "buffer", "route", "push", "commit"} <= set(done)
    assert done.count("push") == len(heaped.runtime.ledger.chunks.list_for_batch(large.batch_id)) > 1
    for path in PATHS:
        sent = heaped.requests(path)
        assert len(sent) == len(set(sent)) == 11 + _BACKLOG
    assert heaped.differences() == []


def took(heaped: RunningEnvironment, count: int) -> bool:
    """Return whether both targets accepted this number of events."""
    return all(len(set(heaped.requests(path))) >= count for path in PATHS)


def size(heaped: RunningEnvironment, batch: Any) -> int:
    """Return the number of events of a batch."""
    return sum(part.end - part.start for part in heaped.runtime.ledger.batches.ranges(batch.batch_id))


def at_work(heaped: RunningEnvironment) -> list[Any]:
    """Return the running and queued tasks; a running streaming task would take new events."""
    path = f"/dags/{DAG_ID}/dagRuns/~/taskInstances"
    found: list[Any] = heaped.airflow.call("GET", path, params={"limit": 1_000})["task_instances"]
    return [each for each in found if each["state"] in ("running", "queued")]


def done_by(heaped: RunningEnvironment, run: dict[str, Any]) -> list[str]:
    """Return the successful tasks of a run, mapped ones once per instance."""
    path = f"/dags/{DAG_ID}/dagRuns/{run['dag_run_id']}/taskInstances"
    found = heaped.airflow.call("GET", path, params={"limit": 100})["task_instances"]
    return [each["task_id"] for each in found if each["state"] == "success"]
