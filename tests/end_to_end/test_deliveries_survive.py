"""Real Airflow, Spark Connect and receiver: every delivery arrives, even if processes, pools, rules or the ledger
fail.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest
from demo.config import product_settings
from end_to_end.looks import delivering, responded, run_state, takes
from end_to_end.running import RunningEnvironment, ledger_files
from end_to_end.secrets import airflow_logs, written_secrets
from stored import dead_letters

from eventbridge.airflow.names import PUSH, REDRIVE_DAG
from eventbridge.airflow.push import chunk_name
from eventbridge.airflow.settings import run_limit
from eventbridge.dead_letters.selection import Selection
from eventbridge.errors import RuleFileError
from eventbridge.event.ids import delivery_id_text
from eventbridge.model.chunk import Chunk
from eventbridge.rules.load import load_rules

pytestmark = pytest.mark.timeout(420)


def test_published_events_are_delivered_retried_or_dead_lettered(running: RunningEnvironment) -> None:
    """Events go from the bus through the DAGs to the targets: delivered at once, after two retries, or
    dead-lettered.
    """
    running.publish("orders", range(300))
    running.until_settled()

    assert len(set(running.requests("/healthy/invoices"))) == 300
    assert Counter(running.requests("/flaky/recovering")).most_common()[-1][1] == 3
    assert len(set(running.requests("/flaky/recovering"))) == 3
    dead_lettered = list(dead_letters(running.runtime, Selection(rule="refused"), whole=True))
    assert {dead_letter["reason"] for dead_letter in dead_lettered} == {"maximum_retry_attempts"}
    assert {delivery_id_text(dead_letter["delivery_id"]) for dead_letter in dead_lettered} == set(
        running.requests("/status/503")
    )
    assert len(dead_lettered) == 4
    assert Counter(running.requests("/status/503")).total() == 8
    assert running.differences() == []
    assert "success" in {run["state"] for run in running.runs("eventbridge_deliver_orders")}
    assert "success" in {run["state"] for run in running.runs("eventbridge_retry_deliveries")}


@pytest.mark.parametrize("victim", ["task", "supervisor"])
def test_a_killed_push_loses_nothing(running: RunningEnvironment, victim: str) -> None:
    """After kill -9 of a push, or of the executor's worker above it, only requests in flight are repeated."""
    before = len(set(running.requests("/slow/tracking")))
    first = {"task": 0, "supervisor": 1_000}[victim]
    running.publish("parcels", range(first, first + 100))
    chunk = running.until("a push is within its chunk", lambda: delivering(running, "parcels"))
    kill(running, push_process(chunk), victim)
    written_down = responded(running, chunk)
    running.until_settled()

    received = Counter(running.requests("/slow/tracking"))
    assert len(received) == before + 100
    assert {received[name] for name in written_down} == {1}
    assert running.differences() == []


def test_a_push_that_airflow_ends_stops_cleanly(running: RunningEnvironment) -> None:
    """Its running task is marked failed: on_kill stops it, it ends its chunk, and no delivery is repeated."""
    before = set(running.requests("/slow/tracking"))
    running.publish("parcels", range(2_000, 2_100))
    chunk = running.until("a push is within its chunk", lambda: delivering(running, "parcels"))
    (run,) = [run["dag_run_id"] for run in running.runs("eventbridge_deliver_parcels") if run["state"] == "running"]
    task = f"/dags/eventbridge_deliver_parcels/dagRuns/{run}/taskInstances/{PUSH}/{chunk.map_index}"
    running.airflow.call("PATCH", task, json={"new_state": "failed"})
    report = "Airflow stopped the push; deliveries that were not sent become pending"
    output = running.until("the push logs what it did", lambda: says(push_log(running, run, chunk), report))
    running.until_settled()

    assert "the task shouldn't be running anymore" in output, "it was Airflow that ended it"
    assert running.runtime.ledger.chunks.get(chunk.batch_id, chunk.chunk_id).state in ("timeout", "error")
    ended = running.airflow.call("GET", task)
    assert (ended["state"], ended["rendered_map_index"]) == ("failed", chunk_name(chunk))
    received = Counter(name for name in running.requests("/slow/tracking") if name not in before)
    taken = responded(running, chunk, "delivered")
    assert len(received) == 100
    assert 0 < len(taken) < 100
    assert {received[name] for name in taken} == {1}
    assert running.differences() == []


def test_a_spark_server_killed_while_it_routes_loses_nothing(running: RunningEnvironment) -> None:
    """After kill -9 of Spark Connect within route and a restart on its port, the same batch is finished."""
    running.publish("readings", range(40_000))
    batch_id = running.until("Spark has written some deliveries", lambda: routing(running, "readings"))
    os.killpg(running.services.groups["spark"], signal.SIGKILL)
    state = running.runtime.ledger.batches.get(batch_id).state
    running.services.restart_spark()
    running.until_settled()

    assert state == "buffered"
    assert running.runtime.ledger.batches.get(batch_id).state == "committed"
    assert len(set(running.requests("/healthy/rare-reading"))) == 200
    assert running.differences() == []


def test_a_pool_closed_while_chunks_wait_delays_its_runner_once(running: RunningEnvironment) -> None:
    """With 0 slots in a pool, the runner's other rules continue after `dagrun_timeout`; once it is reopened, nothing is
    missing.
    """
    limit = run_limit(running.runtime.settings).total_seconds()
    running.publish("stock", range(200))
    first = running.until("one chunk runs and one waits", lambda: one_of_two_waits(running))
    set_slots(running, "eventbridge.rule.narrow", 0)
    try:
        began = time.monotonic()
        running.publish("stock", range(200, 230))
        running.until("the other rule has the later events", lambda: takes(running, "/healthy/wide", 230), limit + 60)
        took = time.monotonic() - began
        running.until(
            "the deliveries of the closed pool are on hold", lambda: held(running, "narrow") == not_taken(running)
        )
        kept = not_taken(running)
        states = {run["state"] for run in running.runs("eventbridge_deliver_stock")}
    finally:
        set_slots(running, "eventbridge.rule.narrow", 1)
    running.trigger("eventbridge_retry_deliveries")  # now, and not in the next minute
    running.until_settled()

    assert "failed" in states  # by its timeout
    assert took < limit + 30
    assert 130 <= kept < 230
    assert running.runtime.ledger.batches.get(first).state == "committed"
    assert len(set(running.requests("/delay/50"))) == 230
    assert running.differences() == []


def test_errors_in_rule_files_are_shown_by_airflow(running: RunningEnvironment) -> None:
    """The import error in the UI lists the errors like `eventbridge rules check`, and disappears once they are
    fixed.
    """
    broken = running.runtime.settings.rules_folder / "broken.yaml"
    broken.write_text("rules:\n  a:\n    bus: oders\n    pattern: {type: [{prefx: x}]}\n    targets: {}\n  b: 5\n")
    with pytest.raises(RuleFileError) as raised:
        load_rules(running.runtime.settings.rules_folder)
    try:
        shown = running.until("Airflow shows an import error", running.airflow.import_errors)
        checked = rules_check(running)
    finally:
        broken.unlink()
    running.until("the import error has disappeared", lambda: not running.airflow.import_errors())

    assert len(raised.value.errors) >= 3
    assert len(shown) == 1
    for error in raised.value.errors:
        assert str(error) in shown[0]
        assert str(error) in checked.stderr
    assert checked.returncode == 2


def test_a_lost_ledger_is_not_mistaken_for_a_first_start(running: RunningEnvironment, tmp_path: Path) -> None:
    """Without its ledger a runner delivers nothing and names the remedy; with it, the runner continues where it was."""
    running.until_settled()
    before = Counter(running.requests("/healthy/invoices"))
    running.runtime.ledger.close()
    lost = [(file, file.rename(tmp_path / file.name)) for file in ledger_files(running.config)]
    try:
        running.publish("orders", range(1_000, 1_010))
        run_id = running.trigger("eventbridge_deliver_orders")
        running.until(
            "the run has failed", lambda: run_state(running, "eventbridge_deliver_orders", run_id) == "failed"
        )
        output = running.task_log("eventbridge_deliver_orders", run_id, "listen")
        meanwhile = Counter(running.requests("/healthy/invoices"))
    finally:
        running.runtime.ledger.close()
        for file in ledger_files(running.config):
            file.unlink()
        for path, kept in lost:
            kept.rename(path)
    running.until_settled()

    assert "Point EVENTBRIDGE_LEDGER_URL at the ledger that belongs to this store" in output
    assert "Traceback" not in output
    assert meanwhile == before
    after = Counter(running.requests("/healthy/invoices"))
    assert after.total() == before.total() + 10
    assert running.differences() == []


def test_airflow_refuses_only_a_backfill(running: RunningEnvironment) -> None:
    """No DAG accepts a backfill, which would create a run per minute; watcher and button still start runs."""
    hour = {"from_date": "2026-10-01T00:00:00Z", "to_date": "2026-10-01T01:00:00Z"}
    refused = {}
    for dag_id in ("eventbridge_deliver_orders", "eventbridge_retry_deliveries", REDRIVE_DAG):
        with pytest.raises(httpx.HTTPStatusError) as raised:
            running.airflow.call("POST", "/backfills", json={"dag_id": dag_id, **hour})
        refused[dag_id] = (raised.value.response.status_code, raised.value.response.json()["detail"])
    running.publish("orders", range(3))  # refused twice: they also start a run of the retries
    started = {
        dag_id: running.trigger(dag_id) for dag_id in ("eventbridge_deliver_orders", "eventbridge_retry_deliveries")
    }
    wanted = {"manual", "asset_triggered"}
    for dag_id, run_id in started.items():
        running.until(f"{dag_id} has run", lambda dag=dag_id, run=run_id: run_state(running, dag, run) == "success")
        running.until(f"{dag_id} is also started by the watcher", lambda dag=dag_id: wanted <= run_types(running, dag))

    assert {status for status, _ in refused.values()} == {400}
    assert all("does not allow backfill runs" in output for _, output in refused.values())
    assert not any("backfill" in run_types(running, dag_id) for dag_id in refused)


def test_no_secret_was_written(running: RunningEnvironment) -> None:
    """After all these tests, ledger, store, bus, and the logs of services and tasks contain no secret.

    Deliveries were signed and authenticated, refused, and echoed by targets.
    """
    running.until_settled()
    repeated = list(dead_letters(running.runtime, Selection(rule="repeating"), whole=True))

    assert len(repeated) == 7, "four of the first test, three of that of the backfills"
    assert all("authorization: Basic *****" in json.dumps(dead_letter, default=str) for dead_letter in repeated)
    assert b"listen" in airflow_logs(running)
    assert written_secrets(running) == []


def says(log: str, text: str) -> str:
    """Return the log if it contains a text, else ""."""
    return log if text in log else ""


def push_log(running: RunningEnvironment, run: str, chunk: Chunk) -> str:
    """Return the log of the task that pushes the chunk."""
    return running.task_log("eventbridge_deliver_parcels", run, PUSH, chunk.map_index or 0)


def push_process(chunk: Chunk) -> psutil.Process:
    """Return the process of the task that pushes the chunk."""
    return psutil.Process(int(chunk.worker.rpartition(":")[2]))


def kill(running: RunningEnvironment, push: psutil.Process, victim: str) -> None:
    """Kill the task's process by SIGKILL, or its supervisor: a worker of Airflow's LocalExecutor."""
    supervisor = push.parent()
    scheduler = running.services.groups["scheduler"]
    assert supervisor is not None
    assert scheduler in {parent.pid for parent in supervisor.parents()}
    (push if victim == "task" else supervisor).kill()


def routing(running: RunningEnvironment, runner: str) -> str | None:
    """Return the runner's batch while Spark's workers have written some, but not all, of its delivery files."""
    batch = running.runtime.ledger.batches.unfinished(runner)
    if batch is None or batch.state != "buffered":
        return None
    return batch.batch_id if any(batch.batch_id in path for path in running.runtime.store.list("deliveries/")) else None


def one_of_two_waits(running: RunningEnvironment) -> str | None:
    """Return the batch while one of its two narrow chunks is being pushed and the other waits for a slot."""
    batch = running.runtime.ledger.batches.unfinished("stock")
    if batch is None or batch.state != "routed":
        return None
    chunks = [
        chunk
        for chunk in running.runtime.ledger.chunks.list_for_batch(batch.batch_id)
        if chunk.pool == "eventbridge.rule.narrow"
    ]
    states = sorted(chunk.state for chunk in chunks if chunk.handed_out)
    return batch.batch_id if states == ["new", "started"] else None


def held(running: RunningEnvironment, rule: str) -> int:
    """Return the number of deliveries of a rule that are on hold."""
    rows = [row for row in running.runtime.ledger.pending.counts() if row.rule == rule and row.state == "on_hold"]
    return sum(row.count for row in rows)


def not_taken(running: RunningEnvironment) -> int:
    """Return how many of the 230 narrow deliveries the receiver has not got."""
    return 230 - len(set(running.requests("/delay/50")))


def set_slots(running: RunningEnvironment, pool: str, slots: int) -> None:
    """Change a pool's slots like Admin > Pools."""
    body = {"pool": pool, "slots": slots, "include_deferred": False}
    running.airflow.call("PATCH", f"/pools/{pool}", params={"update_mask": "slots"}, json=body)


def rules_check(running: RunningEnvironment) -> subprocess.CompletedProcess[str]:
    """Run `eventbridge rules check`."""
    environ = {**os.environ, **product_settings(running.config)}
    command = [str(Path(sys.executable).with_name("eventbridge")), "rules", "check"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def run_types(running: RunningEnvironment, dag_id: str) -> set[str]:
    """Return the types of the runs of a DAG."""
    return {run["run_type"] for run in running.runs(dag_id)}
