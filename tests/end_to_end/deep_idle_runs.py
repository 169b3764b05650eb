"""Runs without deliveries in a real Airflow start few tasks; the others are skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from end_to_end.looks import takes
from end_to_end.running import QUOTA, RunningEnvironment

pytestmark = pytest.mark.timeout(900)


def test_a_run_that_finds_nothing_starts_one_task(directed: RunningEnvironment) -> None:
    """This applies to runs of a runner, in batch or streaming mode, and of the retries."""
    directed.publish("orders", range(3))
    directed.until("they are delivered", lambda: takes(directed, "/healthy/accounts", 3))
    directed.until_settled()

    for dag_id, first in (
        ("eventbridge_deliver_orders", "listen"),
        ("eventbridge_deliver_quick", "streaming"),
        ("eventbridge_retry_deliveries", None),
    ):
        found = states(directed, dag_id, directed.trigger(dag_id))
        started = {name for name, state in found.items() if state != "skipped"}
        assert started == {first or "plan_retries"}
        assert len(found) == (7 if first else 9)


def test_a_run_of_a_replay_that_waits_starts_two_tasks(directed: RunningEnvironment) -> None:
    """The task that plans and the one that triggers the next run. While the store is at its quota, run follows run;
    then one delivers."""
    ledger = directed.runtime.ledger
    before = len(directed.requests("/healthy/accounts"))
    ledger.store_sizes.record_measured(QUOTA, ledger.now())
    form = {"bus": "orders", "from": (datetime.now(UTC) - timedelta(hours=1)).isoformat(), "rules": ["accounts"]}
    form["dry_run"] = False
    first = directed.trigger("eventbridge_replay_events", form)
    directed.until("a second run continues it", lambda: len(directed.runs("eventbridge_replay_events")) > 1)
    waiting = states(directed, "eventbridge_replay_events", first)

    ledger.store_sizes.record_measured(0, ledger.now())
    (replay,) = ledger.replays.all()
    directed.until("it is done", lambda: ledger.replays.get(replay.replay_id).state == "done")
    directed.until_settled()

    assert {name for name, state in waiting.items() if state != "skipped"} == {"plan_replay", "trigger_next_run"}
    assert len(waiting) == 7
    assert len(directed.requests("/healthy/accounts")) == before + 3
    assert directed.differences() == []


def states(directed: RunningEnvironment, dag_id: str, run_id: str) -> dict[str, str]:
    """Return the states of a run's tasks once it has ended."""
    path = f"/dags/{dag_id}/dagRuns/{run_id}"
    directed.until("it has ended", lambda: directed.airflow.call("GET", path)["state"] in ("success", "failed"))
    found = directed.airflow.call("GET", f"{path}/taskInstances")["task_instances"]
    return {each["task_id"]: each["state"] for each in found}
