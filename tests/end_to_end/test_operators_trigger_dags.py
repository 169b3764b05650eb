"""Operators trigger DAGs by Airflow's REST API in a real Airflow: each form, and its results.

The same Airflow also has a runner in streaming mode.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from end_to_end.looks import earlier, run_state, takes
from end_to_end.running import QUOTA, RunningEnvironment, delivery_of
from pipeline.delivering import operational_events

from eventbridge.control.publish import publish_events
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.replay.survey import survey
from eventbridge.testing.sources import messages_of
from eventbridge.views.status import status

pytestmark = pytest.mark.timeout(600)

#: A runner in streaming mode.
QUICK = "quick"

#: An event for the form of `eventbridge_publish_events`.
EVENT = '{"specversion": "1.0", "type": "order.placed", "source": "/shop"}'

#: A time before every event.
LONG_AGO = "2026-01-01T00:00:00Z"

#: The rule `accounts`, only for later orders.
LATER = """
rules:
  accounts:
    bus: orders
    pattern: {type: [order.placed], data: {n: [{numeric: [">=", 2]}]}}
    targets:
      team: {type: http, url: "http://127.0.0.1:8765/healthy/accounts", allow_http: true}
"""


def test_a_streaming_task_delivers_and_a_killed_one_loses_nothing(directed: RunningEnvironment) -> None:
    """The first event starts a streaming task, which delivers the others; after kill -9 the task is retried, or a new
    run starts.
    """
    directed.publish(QUICK, range(1))
    directed.until("the first is delivered", lambda: len(directed.requests("/healthy/quick")) == 1)
    first = holder(directed)
    begun = len(watcher_runs(directed))

    for number in range(1, 11):
        directed.publish(QUICK, range(number, number + 1))
        directed.until("it is delivered", lambda number=number: len(directed.requests("/healthy/quick")) > number)
    assert len(watcher_runs(directed)) <= begun + 1, "the run of the first event may start late"
    os.kill(first, signal.SIGKILL)
    directed.publish(QUICK, range(11, 21))
    directed.until("another process has the lease", lambda: holder(directed) != first)
    directed.until("all are delivered", lambda: len(set(directed.requests("/healthy/quick"))) == 21)
    second = holder(directed)
    directed.publish(QUICK, range(21, 22))
    directed.until("it delivers as well", lambda: len(set(directed.requests("/healthy/quick"))) == 22)

    assert second != first
    assert len(watcher_runs(directed)) <= begun + 2
    directed.until(
        "its streaming task ends without events", lambda: directed.runtime.ledger.streaming.lease(QUICK) is None
    )
    directed.until("it is reconciled", lambda: directed.runtime.ledger.batches.unfinished(QUICK) is None)
    assert directed.differences() == []


def test_changes_of_a_users_dag_are_events(directed: RunningEnvironment) -> None:
    """Each change of runs, tries and assets is an event; a rule reports that the DAG failed twice in an hour.

    EventBridge's own DAGs, which run meanwhile, cause no events. Another rule starts a DAG when an asset has many rows.
    """
    for _ in range(2):
        ran(directed, "load_orders", {}, "failed")
    directed.until("the second failure is reported", lambda: directed.requests("/healthy/failing-dags"))

    directed.until("the DAG starts for both changes", lambda: len(directed.runs("report_orders")) == 2)
    assert [run["conf"] for run in directed.runs("report_orders")] == [{"rows": 5000}] * 2
    directed.until("the last task's process has published", lambda: len(changes_of(directed, "load_orders")) >= 18)
    events = changes_of(directed, "load_orders")
    kinds = Counter(event["type"].removeprefix("org.apache.airflow.") for event in events)
    assert kinds == {
        "dag_run.running": 2,
        "dag_run.failed": 2,
        "task_instance.running": 6,
        "task_instance.success": 2,
        "task_instance.up_for_retry": 2,
        "task_instance.failed": 2,
        "asset.changed": 2,
    }
    assert len({event["id"] for event in events}) == len(events)
    data = [event["data"] for event in events]
    dags = {dag_of(each) for each in published(directed, "airflow")}
    assert not [each for each in dags if each.startswith("eventbridge_")]
    assert [each["extra"] for each in data if "asset" in each] == [{"rows": 5000}] * 2
    assert sorted(each["failed_runs_last_hour"] for each in data if "failed_runs_last_hour" in each) == [1, 2]
    assert {each["error"] for each in data if each.get("error_type")} == {"there are no rows"}
    assert all(each["tags"] == ["team:sales"] and each["owner"] == "sales" for each in data if "asset" not in each)
    assert len(directed.requests("/healthy/failing-dags")) == 1


def test_an_event_starts_a_dag_whose_failure_is_an_event(directed: RunningEnvironment) -> None:
    """The run has the id of the delivery, and the order as its conf; a rule reports only the run that failed."""
    directed.publish("large", range(2))
    accepted, refused = (delivery_of("large", number, "large-orders", "review") for number in range(2))
    directed.until("both runs are started", lambda: len(directed.runs("review_order")) == 2)
    until_ended(directed, "review_order", accepted, "success")
    until_ended(directed, "review_order", refused, "failed")
    directed.until("the failure is reported", lambda: directed.requests("/healthy/failed-reviews"))

    assert {run["dag_run_id"]: run["conf"]["n"] for run in directed.runs("review_order")} == {accepted: 0, refused: 1}
    assert len(directed.requests("/healthy/failed-reviews")) == 1


def test_a_rule_is_paused_and_resumed(directed: RunningEnvironment) -> None:
    """Its deliveries wait while the batch is committed and the other rule delivers; the override records the user."""
    ran(directed, "eventbridge_operate_rules", {"action": "pause rule", "rule": "invoices"})
    directed.publish("orders", range(3))
    directed.until("the other rule delivers", lambda: takes(directed, "/healthy/accounts", 3))
    directed.until("the batch is committed", lambda: directed.open() == [])
    waiting = directed.requests("/healthy/invoices")
    (override,) = status(directed.runtime).overrides

    ran(directed, "eventbridge_operate_rules", {"action": "resume rule", "rule": "invoices"})
    directed.until("the rule delivers", lambda: takes(directed, "/healthy/invoices", 3))
    directed.until_settled()

    assert waiting == []
    assert (override.rule, override.kind, override.set_by) == ("invoices", "paused", "admin")
    assert status(directed.runtime).overrides == ()


def test_an_override_of_the_priority_applies_to_the_next_push(directed: RunningEnvironment) -> None:
    """The push of the next batch has the pool and weight of the override; once it is cleared, those of the rule
    file.
    """
    placements = []
    for number, form in enumerate(({}, {"action": "set priority", "value": "high"}, {"action": "clear priority"})):
        if form:
            ran(directed, "eventbridge_operate_rules", {"rule": "accounts", **form})
        directed.publish("orders", range(3 + number, 4 + number))
        directed.until("it is delivered", lambda: takes(directed, "/healthy/accounts", 4 + number))  # noqa: B023
        directed.until_settled()
        push = pushes(directed)["accounts/team"]
        placements.append((push["pool"], push["priority_weight"]))

    assert [pool for pool, _ in placements] == ["eventbridge.medium", "eventbridge.high", "eventbridge.medium"]
    assert placements[1][1] > placements[0][1] == placements[2][1]


def test_the_list_of_pushes_names_rule_and_target(directed: RunningEnvironment) -> None:
    """Airflow shows the names instead of the map indexes."""
    assert set(pushes(directed)) == {"invoices/ledger", "accounts/team"}


def test_an_event_is_explained_in_the_tasks_log(directed: RunningEnvironment) -> None:
    """The log has JSON: both rules matched, both events were delivered. For an unknown id the run fails and says so."""
    run_id = ran(directed, "eventbridge_explain_event", {"event_id": "orders-1"})
    unknown = ran(directed, "eventbridge_explain_event", {"event_id": "orders-99"}, "failed")

    (found,) = [
        json.loads(line)
        for line in log_lines(directed, "eventbridge_explain_event", run_id, "explain")
        if line[:1] == "{"
    ]
    (event,) = found["events"]
    assert {each["rule"]: each["matched"] for each in event["rules"]} == {"invoices": True, "accounts": True}
    assert [each["state"] for each in event["deliveries"]] == ["delivered", "delivered"]
    assert "orders-99" in directed.task_log("eventbridge_explain_event", unknown, "explain")


def test_the_log_links_the_reports_of_backtest_and_diff(directed: RunningEnvironment) -> None:
    """JSON and Markdown in the store: the matches of a rule, and those that a pasted file loses."""
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    backtest = directed.trigger("eventbridge_backtest_rules", {"candidate": "accounts", "from": since, "samples": 1})
    diff = directed.trigger("eventbridge_diff_rules", {"a": "accounts", "b": LATER, "from": since, "samples": 1})
    until_ended(directed, "eventbridge_backtest_rules", backtest, "success")
    until_ended(directed, "eventbridge_diff_rules", diff, "success")

    report, page = reports(directed, "eventbridge_backtest_rules", backtest, "backtest")
    assert [(rule["rule"], rule["matched"]) for rule in report["rules"]] == [("accounts", 6)]
    assert "accounts" in page
    report, page = reports(directed, "eventbridge_diff_rules", diff, "diff")
    assert [(pair["both"], pair["gained"], pair["lost"]) for pair in report["pairs"]] == [(4, 0, 2)]
    assert "accounts" in page


def test_the_store_is_maintained(directed: RunningEnvironment) -> None:
    """A run of `eventbridge_maintain_store` logs what it removed, and adds every committed batch to the index of
    events.
    """
    run_id = ran(directed, "eventbridge_maintain_store")

    assert any(
        line.startswith("removed: ") for line in log_lines(directed, "eventbridge_maintain_store", run_id, "maintain")
    )
    assert {batch.in_index for batch in directed.runtime.ledger.batches.find(limit=None) if batch.kind == "normal"} == {
        "yes"
    }


def test_an_hour_is_checked(directed: RunningEnvironment) -> None:
    """Great Expectations measures the form's hour; the Data Docs page is in the store."""
    # The schedule has checked one of the last two hours, and an hour is not checked twice.
    with earlier(directed, 3) as hours:
        ran(directed, "eventbridge_check_quality", {"hour": hours[1].isoformat()})

    (check,) = [each for each in directed.runtime.ledger.quality.checks() if each.hour == hours[1]]
    record = json.loads(directed.runtime.store.get(check.record))
    measured = {(each["subject"]["kind"], each["subject"]["name"]) for each in record["measures"]}
    assert {("bus", "orders"), ("target", "accounts"), ("target", "invoices")} <= measured
    assert directed.runtime.store.get(record["page"]).startswith(b"<!DOCTYPE html>")


def test_a_backfill_without_parameters_delivers_nothing(directed: RunningEnvironment) -> None:
    """Airflow's dialogue passes its form on only if a box is ticked: the run fails, and its log names the box."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    directed.backfill("eventbridge_replay_archive", (hour, hour), {})
    (run,) = directed.until("the run exists", lambda: directed.runs("eventbridge_replay_archive"))
    until_ended(directed, "eventbridge_replay_archive", run["dag_run_id"], "failed")

    log = directed.task_log("eventbridge_replay_archive", run["dag_run_id"], "begin_replay")
    assert "tick 'Override parameters on existing runs'" in log
    assert "error_detail" not in log
    assert directed.runtime.ledger.replays.all() == []


@pytest.mark.parametrize(
    ("dag_id", "form", "expected"),
    [
        ("eventbridge_replay_events", {}, "the form is incomplete. Fill in bus"),
        ("eventbridge_replay_events", {"bus": "ordres", "from": LONG_AGO, "rules": ["*"]}, "Did you mean orders?"),
        (
            "eventbridge_replay_events",
            {"bus": "orders", "from": LONG_AGO, "rules": ["acounts"]},
            "Did you mean accounts?",
        ),
        ("eventbridge_redrive_dead_letters", {}, "no filter given"),
        ("eventbridge_redrive_dead_letters", {"rule": "acounts"}, "Did you mean accounts?"),
        ("eventbridge_operate_rules", {"rule": "acounts"}, "Did you mean accounts?"),
        (
            "eventbridge_operate_rules",
            {"rule": "accounts", "action": "enable target", "target": "taem"},
            "Did you mean team?",
        ),
        ("eventbridge_explain_event", {"event_id": "orders-1", "bus": "ordres"}, "Did you mean orders?"),
        ("eventbridge_publish_events", {"bus": "ordres", "events": EVENT}, "Did you mean orders?"),
        ("eventbridge_backtest_rules", {"candidate": "acounts", "from": LONG_AGO}, "Did you mean accounts?"),
    ],
)
def test_a_mistyped_form_fails_with_one_sentence(
    directed: RunningEnvironment, dag_id: str, form: dict[str, Any], expected: str
) -> None:
    """The run fails, its log has the sentence without a stack, and the task is not retried."""
    run_id = ran(directed, dag_id, form, "failed")
    tasks = directed.airflow.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
    (failed,) = [each for each in tasks if each["state"] == "failed"]
    log = json.loads(directed.task_log(dag_id, run_id, failed["task_id"]))["content"]
    errors = [each for each in log if each.get("level") == "error"]

    assert failed["try_number"] == 1
    assert [each for each in log if "error_detail" in each] == []
    assert expected in errors[0]["event"]
    assert [each["event"] for each in errors[1:]] == ["Task exited"]


def test_failed_deliveries_are_visible_in_airflow(directed: RunningEnvironment) -> None:
    """They are in the logs of push and settlement, with status and events, and in the note of the run."""
    set_response(directed, "crew", 400)
    directed.publish("duty", range(3))
    (noted,) = directed.until(
        "the run has a note", lambda: [run for run in directed.runs("eventbridge_deliver_duty") if run["note"]]
    )
    until_ended(directed, "eventbridge_deliver_duty", noted["dag_run_id"], "success")
    (run,) = [run for run in directed.runs("eventbridge_deliver_duty") if run["note"]]
    dead = "crew-duty/crew: 3 of 3 dead-lettered, HTTP 400; events duty-0, duty-1, duty-2"
    pushed = log_lines(directed, "eventbridge_deliver_duty", run["dag_run_id"], "push", 0)

    assert run["note"].startswith("EventBridge: batch ")
    assert f"3 dead-lettered: {dead}" in run["note"]
    assert [line for line in pushed if line.startswith(f"{dead}. crew-duty/log: 3 of 3 delivered. http")]
    entries = log_lines(directed, "eventbridge_deliver_duty", run["dag_run_id"], "write_dead_letters")
    assert [line for line in entries if line.startswith(dead)]
    assert not [line for line in (*pushed, *entries) if "Report(" in line or "Returned value was" in line]


def test_a_cleared_push_logs_that_it_was_already_sent(directed: RunningEnvironment) -> None:
    """It sends nothing, and says how to send again."""
    (run,) = [run for run in directed.runs("eventbridge_deliver_duty") if run["note"]]
    run_id = run["dag_run_id"]
    body = {"dry_run": False, "dag_run_id": run_id, "task_ids": ["push"], "only_failed": False}
    directed.airflow.call("POST", "/dags/eventbridge_deliver_duty/clearTaskInstances", json=body)
    until_ended(directed, "eventbridge_deliver_duty", run_id, "success")

    assert any(
        "To send its events again, start a replay" in line
        for line in log_lines(directed, "eventbridge_deliver_duty", run_id, "push", 0)
    )
    assert len(directed.requests("/scripted/crew")) == 3


def test_the_form_enables_a_target_and_releases_a_rule(directed: RunningEnvironment) -> None:
    """Deliveries on hold for a disabled target become due; a rule that is not on hold stays as it is."""
    directed.runtime.ledger.targets.set_status("crew-duty", "crew", "disabled", "responds with 410")
    enabled = ran(
        directed, "eventbridge_operate_rules", {"action": "enable target", "rule": "crew-duty", "target": "crew"}
    )
    released = ran(directed, "eventbridge_operate_rules", {"action": "release rule", "rule": "crew-duty"})

    assert directed.runtime.ledger.targets.statuses()["crew-duty", "crew"].state == "ok"
    done = [(each.by, each.call, each.status) for each in directed.runtime.ledger.actions.find(2)]
    assert done == [("Airflow, admin", "DAG eventbridge_operate_rules", 0)] * 2
    assert "Target crew-duty/crew enabled." in directed.task_log("eventbridge_operate_rules", enabled, "operate")
    assert "crew-duty is not on hold" in directed.task_log("eventbridge_operate_rules", released, "operate")


def test_a_run_that_was_marked_failed_is_cleared(directed: RunningEnvironment) -> None:
    """Airflow accepts the clearing, and the run succeeds the second time, for every DAG that processes batches."""
    for dag_id in ("eventbridge_retry_deliveries", "eventbridge_deliver_orders"):
        run_id = ran(directed, dag_id)
        path = f"/dags/{dag_id}/dagRuns/{run_id}"
        directed.airflow.call("PATCH", path, json={"state": "failed"})
        directed.airflow.call("POST", f"{path}/clear", json={"dry_run": False, "only_failed": False})
        until_ended(directed, dag_id, run_id, "success")


def test_a_replay_is_cancelled_with_its_run_without_a_triggerer(directed: RunningEnvironment) -> None:
    """The run of an hour is marked failed before it waits in a triggerer; the next batch is not planned."""
    before = len(directed.requests("/healthy/accounts"))
    directed.services.end("triggerer")
    directed.airflow.call("PATCH", "/dags/eventbridge_replay_events", json={"is_paused": True})
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    directed.backfill(
        "eventbridge_replay_archive",
        (hour, hour),
        {"dag_run_conf": {"bus": "orders", "rules": ["*"], "dry_run": False}},
    )
    (replay,) = directed.until("the run has started a replay", directed.runtime.ledger.replays.all)
    (run,) = [each for each in directed.runs("eventbridge_replay_archive") if each["state"] != "failed"]
    directed.airflow.call(
        "PATCH", f"/dags/eventbridge_replay_archive/dagRuns/{run['dag_run_id']}", json={"state": "failed"}
    )
    assert directed.runtime.ledger.replays.get(replay.replay_id).state == "running"

    directed.airflow.call("PATCH", "/dags/eventbridge_replay_events", json={"is_paused": False})
    directed.until(
        "it is cancelled", lambda: directed.runtime.ledger.replays.get(replay.replay_id).state == "cancelled"
    )
    directed.services.restart("triggerer")

    assert len(directed.requests("/healthy/accounts")) == before


def test_the_fallback_starts_a_run_without_a_triggerer(directed: RunningEnvironment) -> None:
    """The task of `eventbridge_start_waiting_runs` starts the run of the runner with events."""
    directed.until_settled()
    directed.services.end("triggerer")
    try:
        before, delivered = (
            len(directed.runs("eventbridge_deliver_orders")),
            len(directed.requests("/healthy/accounts")),
        )
        directed.publish("orders", range(900, 902))
        directed.trigger("eventbridge_start_waiting_runs")
        directed.until("they are delivered", lambda: takes(directed, "/healthy/accounts", delivered + 2))
        assert len(directed.runs("eventbridge_deliver_orders")) > before
    finally:
        directed.services.restart("triggerer")
    directed.until_settled()


def test_an_orphaned_replay_continues_once_ingestion_resumes(directed: RunningEnvironment) -> None:
    """A run of `eventbridge_retry_deliveries` triggers its next run, which waits while the store is at its quota."""
    ledger, before = directed.runtime.ledger, len(directed.requests("/healthy/accounts"))
    request = WrittenReplayRequest("orders", since="1d", rules=["accounts"]).read(
        ledger.now(), directed.runtime.rule_set()
    )
    replay_id = begin_replay(directed.runtime, request, "eventbridge_replay_events manual__died").replay_id
    archived = survey(directed.runtime, request).deliveries["accounts/team"]
    ledger.replays.defer(replay_id, ledger.now() - timedelta(hours=1))
    ledger.store_sizes.record_measured(QUOTA, ledger.now())
    ran(directed, "eventbridge_retry_deliveries")
    directed.until("ingestion has stopped", lambda: ledger.ingestion.current_stop() is not None)
    waiting = (ledger.replays.get(replay_id).sequence, ledger.replays.get(replay_id).state)

    ledger.store_sizes.record_measured(0, ledger.now())
    directed.until("it is done", lambda: ledger.replays.get(replay_id).state == "done")
    directed.until_settled()

    assert waiting == (0, "running")
    assert len(directed.requests("/healthy/accounts")) == before + archived > before
    assert ledger.ingestion.current_stop() is None


def test_a_late_batch_is_reported(directed: RunningEnvironment) -> None:
    """The watcher finds it in the ledger and reports `batch.late`; the slow target still gets its delivery."""
    directed.publish("slow", range(1))
    directed.until("the batch is reported", lambda: "slow" in late_runners(directed))
    directed.until_settled()

    assert directed.differences() == []


def test_a_users_dag_waits_for_its_deliveries_and_for_an_event(directed: RunningEnvironment) -> None:
    """The sensors of examples/dags/place_order.py end with the deliveries of its event, and with the confirmation."""
    run_id = directed.trigger("place_order")
    directed.until(
        "the second sensor waits",
        lambda: task_state(directed, "place_order", run_id, "confirmed") == "deferred",
    )
    confirmation = {"specversion": "1.0", "id": run_id, "source": "/shop", "type": "order.confirmed", "subject": run_id}
    publish_events(directed.runtime, "orders", None, [json.dumps(confirmation).encode()])
    until_ended(directed, "place_order", run_id, "success")

    deliveries = xcom(directed, "place_order", run_id, "delivered")
    assert {(each["rule"], each["state"]) for each in deliveries} == {
        ("invoices", "delivered"),
        ("accounts", "delivered"),
    }
    assert xcom(directed, "place_order", run_id, "confirmed")["id"] == run_id


def test_events_start_a_users_dag(directed: RunningEnvironment) -> None:
    """The watcher of examples/dags/on_large_orders.py hands it the matching events, and no others."""
    orders = [
        {"specversion": "1.0", "id": f"large-{n}", "source": "/shop", "type": "order.placed", "data": {"amount": n}}
        for n in (9_999, 10_000, 20_000, 30_000)
    ]
    for each in orders:  # asset events of their own, of which the scheduler passes over some
        publish_events(directed.runtime, "orders", None, [json.dumps(each).encode()])
        time.sleep(0.4)

    def reviewed() -> list[str]:
        runs = [run["dag_run_id"] for run in directed.runs("on_large_orders") if run["state"] == "success"]
        return sorted(order for run in runs for order in xcom(directed, "on_large_orders", run, "review"))

    expected = [f"large-{n}: {n}" for n in (10_000, 20_000, 30_000)]
    directed.until("the large orders are reviewed", lambda: reviewed() == expected)
    directed.until_settled()


def test_a_users_dag_replays(directed: RunningEnvironment) -> None:
    """The operator of examples/dags/replay_orders.py waits until the replay has ended, and returns its counts."""
    before = len(directed.requests("/healthy/accounts"))
    run_id = ran(directed, "replay_orders")

    result = xcom(directed, "replay_orders", run_id, "replay")
    assert set(result["outcomes"]) == {"delivered"}
    assert len(directed.requests("/healthy/accounts")) == before + result["outcomes"]["delivered"] > before
    directed.until_settled()


def holder(directed: RunningEnvironment) -> int:
    """Wait for a streaming task that delivers, and return its process id."""
    directed.until("a streaming task has a batch open", lambda: directed.runtime.ledger.batches.find(state="open"))
    lease = directed.until("a process has the lease", lambda: directed.runtime.ledger.streaming.lease(QUICK))
    return int(lease.holder.split(":")[1])


def watcher_runs(directed: RunningEnvironment) -> list[str]:
    """Return the runs that the watcher started, without those of the schedule."""
    runs = [str(run["dag_run_id"]) for run in directed.runs(f"eventbridge_deliver_{QUICK}")]
    return [run for run in runs if run.startswith("asset_triggered__")]


def late_runners(directed: RunningEnvironment) -> set[str]:
    """Return the runners whose batches were reported as late, on the bus or in the ledger."""
    waiting = [(each.type, each.subject) for each in directed.runtime.ledger.operational_events.waiting(1_000)]
    published = [(each["type"], each["subject"]) for each in operational_events(directed.runtime)]
    return {subject for kind, subject in waiting + published if kind == "batch.late"}


def ran(
    directed: RunningEnvironment, dag_id: str, form: Mapping[str, Any] | None = None, state: str = "success"
) -> str:
    """Trigger a DAG, wait until the run has ended in a state, and return its id."""
    run_id = directed.trigger(dag_id, form)
    until_ended(directed, dag_id, run_id, state)
    return run_id


def published(directed: RunningEnvironment, bus: str) -> list[dict[str, Any]]:
    """Return all events on a bus."""
    with closing(directed.runtime.open_source(directed.runtime.rule_files().buses[bus])) as source:
        blocks = [source.read(each, source.earliest(each), source.end(each)) for each in source.partitions()]
        return [json.loads(message.body) for block in blocks for message in messages_of(block)]


def changes_of(directed: RunningEnvironment, dag_id: str) -> list[dict[str, Any]]:
    """Return the published changes of a DAG's runs and task instances, and of the assets that it has changed."""
    return [each for each in published(directed, "airflow") if dag_of(each) == dag_id]


def dag_of(change: Mapping[str, Any]) -> str:
    """Return the id of the DAG that a change in Airflow concerns."""
    data = change["data"]
    return str(data.get("dag_id") or data["source_dag_id"])


def until_ended(directed: RunningEnvironment, dag_id: str, run_id: str, state: str) -> None:
    """Wait until a run has ended; it must end in `state`."""
    ended = directed.until(
        f"{dag_id} has ended",
        lambda: found if (found := run_state(directed, dag_id, run_id)) in ("success", "failed") else "",
    )
    assert ended == state, directed.diagnosis()


def task_state(directed: RunningEnvironment, dag_id: str, run_id: str, task_id: str) -> str:
    """Return the state of a task."""
    return str(directed.airflow.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")["state"])


def xcom(directed: RunningEnvironment, dag_id: str, run_id: str, task_id: str) -> Any:
    """Return the return value of a task."""
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
    value = directed.airflow.call("GET", path, params={"deserialize": True})["value"]
    return json.loads(value) if isinstance(value, str) else value


def log_lines(directed: RunningEnvironment, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> list[str]:
    """Return the messages of a task's log."""
    log = json.loads(directed.task_log(dag_id, run_id, task_id, map_index))
    return [str(each["event"]) for each in log["content"]]


def set_response(directed: RunningEnvironment, name: str, status: int) -> None:
    """Make the receiver respond with a status at /scripted/NAME."""
    port = directed.config.receiver_port
    httpx.post(f"http://127.0.0.1:{port}/script/{status}/{name}").raise_for_status()


def reports(directed: RunningEnvironment, dag_id: str, run_id: str, task_id: str) -> tuple[Any, str]:
    """Return the JSON and the Markdown that a task's log links."""
    links = [
        line.removeprefix("report: ") for line in log_lines(directed, dag_id, run_id, task_id) if "report: " in line
    ]
    as_json, as_markdown = (Path(urlsplit(link).path).read_text() for link in links)
    return json.loads(as_json), as_markdown


def pushes(directed: RunningEnvironment) -> dict[str, dict[str, Any]]:
    """Return the newest push of `eventbridge_deliver_orders` for each name in Airflow's list."""
    newest = {"order_by": "start_date", "limit": 1_000}
    found = directed.airflow.call("GET", "/dags/eventbridge_deliver_orders/dagRuns/~/taskInstances", params=newest)
    done = [each for each in found["task_instances"] if each["task_id"] == "push" and each["state"] == "success"]
    return {each["rendered_map_index"]: each for each in done}
