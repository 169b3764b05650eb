"""Real Airflow, Spark, S3 server and receivers: targets fail, refuse and recover, and no delivery is lost."""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import httpx
import psutil
import pytest
from end_to_end.looks import delivering, responded, run_state, takes
from end_to_end.mortal import MortalServer
from end_to_end.running import RunningEnvironment, delivery_of, source_of
from end_to_end.secrets import airflow_logs, written_secrets
from stored import dead_letters

from eventbridge.airflow.names import PLAN_REDRIVE, REDRIVE_DAG
from eventbridge.dead_letters.redrives import Marks
from eventbridge.dead_letters.selection import Selection
from eventbridge.model.pending import PendingDeliveries
from eventbridge.processes import NICENESS
from eventbridge.rules.operations_bus import OPERATIONS_BUS
from eventbridge.testing.sources import messages_of

pytestmark = pytest.mark.timeout(900)  # Airflow takes a minute or two to start, and each failure takes time

_RUNNER = "orders"


def test_a_target_fails_and_recovers_while_scheduler_and_store_are_killed(
    healing: tuple[RunningEnvironment, MortalServer],
) -> None:
    """The dead target degrades and the others continue, also after kill -9 of store and scheduler. When it recovers,
    its backlog is delivered: in order for the ordered target, earliest due first for the other. Nothing is missing.
    """
    running, mortal = healing
    running.publish("orders", range(10))  # so few that they do not hide its failures
    running.until_settled()

    mortal.kill()
    running.publish("orders", range(10, 50))
    running.until("the dead target is degraded", lambda: state_of_crm(running) == "degraded")
    running.until("the others have what it has not", lambda: takes(running, "/healthy/invoices", 50))
    running.until("a task of its retries has a lower priority", lambda: has_low_priority_task(running))

    running.until("that batch is committed", lambda: running.runtime.ledger.batches.unfinished(_RUNNER) is None)
    running.publish("orders", range(50, 90))
    batch_id = running.until(
        "the next batch is in progress", lambda: running.runtime.ledger.batches.unfinished(_RUNNER)
    ).batch_id
    kill(running, "s3")
    running.services.restart("s3")
    running.until("the batch is committed", lambda: running.runtime.ledger.batches.get(batch_id).state == "committed")

    running.publish("orders", range(90, 130))
    chunk = running.until("a push is within its chunk", lambda: delivering(running, _RUNNER, "tracking"))
    kill(running, "scheduler")
    written_down = responded(running, chunk)
    backlog = [row for row in running.runtime.ledger.pending.find() if row.target == "crm" and row.state == "scheduled"]
    assert len(set(running.requests("/healthy/crm"))) == 10, "the dead target got nothing"
    mortal.start()
    running.services.restart("scheduler")
    running.until_settled(240)

    assert set(running.requests("/healthy/invoices")) == ids(range(130), "invoices", "ledger")
    assert set(running.requests("/healthy/crm")) == ids(range(130), "partners", "crm")
    assert set(running.requests("/healthy/account")) == ids(range(130), "partners", "account")
    tracked = Counter(running.requests("/slow/tracking"))
    assert set(tracked) == ids(range(90, 130), "tracking", "carrier")
    assert {tracked[name] for name in written_down} == {1}
    assert out_of_order(running) == []
    assert taken_too_early(running, backlog) == []
    reported = defaultdict(list)
    for event in operational_events(running):
        reported[event["subject"]].append(event)
    assert reported["partners/crm"][0]["type"] == "target.degraded"
    assert reported["partners/crm"][-1]["type"] == "target.recovered"
    reported.pop(
        "tracking/carrier", None
    )  # it takes four seconds where the others take less than one, so it may be degraded as slow
    assert set(reported) == {"partners/crm"}
    assert running.differences() == []


def test_dead_letters_are_redriven_by_the_form_of_the_dag(healing: tuple[RunningEnvironment, MortalServer]) -> None:
    """Refused deliveries are redriven under the same ids once the target recovers; an invalid form gets an error."""
    running, _ = healing
    wanted = ids(range(10_000, 10_005), "claims", "office")
    with pytest.raises(httpx.HTTPStatusError) as raised:
        running.trigger(REDRIVE_DAG, {"rule": "claims", "rate": "fast"})
    invalid = {
        "unknown field 'retransfrom' of the form. Did you mean retransform?": {"rule": "claims", "retransfrom": True},
        "no filter given. Fill in a filter, or tick All.": {},
    }
    runs = {text: running.trigger(REDRIVE_DAG, conf) for text, conf in invalid.items()}
    set_response(running, 400)
    running.publish("orders", range(10_000, 10_005))
    running.until("they are dead-lettered", lambda: dead_claims(running) == 5)
    refused = Counter(running.requests("/scripted/claims"))
    set_response(running, 200)
    mistyped = running.trigger(REDRIVE_DAG, {"rule": "clams", "dry_run": False})
    runs["no rule file defines a rule 'clams', and no dead letter names it. Did you mean claims?"] = mistyped
    dry = running.trigger(REDRIVE_DAG, {"rule": "claims"})
    running.until("the dry run has ended", lambda: run_state(running, REDRIVE_DAG, dry) == "success")
    begun_by_a_dry_run = running.runtime.ledger.redrives.all()
    right = running.trigger(REDRIVE_DAG, {"rule": "claims", "reason": "non_retryable", "rate": 50, "dry_run": False})
    running.until(
        "the redrive is done", lambda: [each.state for each in running.runtime.ledger.redrives.all()] == ["done"]
    )
    running.until("its run has ended", lambda: run_state(running, REDRIVE_DAG, right) == "success")
    running.until_settled()

    assert refused == Counter(wanted)
    assert raised.value.response.status_code == 400
    assert "rate" in raised.value.response.text
    for text, run_id in runs.items():
        assert run_state(running, REDRIVE_DAG, run_id) == "failed"
        log = running.task_log(REDRIVE_DAG, run_id, PLAN_REDRIVE)
        assert text in log
        assert "Traceback" not in log
        assert "error_detail" not in log, "Airflow shows the frames of a stack under this name"
    assert "would take dead letters of claims/office: 5" in running.task_log(REDRIVE_DAG, dry, PLAN_REDRIVE)
    assert begun_by_a_dry_run == []
    assert Counter(running.requests("/scripted/claims")) == Counter([*wanted, *wanted])
    (redrive,) = running.runtime.ledger.redrives.all()
    assert Marks(running.runtime).counts(redrive) == {"delivered": 5}
    assert running.differences() == []


def test_no_secret_was_written(healing: tuple[RunningEnvironment, MortalServer]) -> None:
    """Bucket, ledger and logs contain none, also those of tasks that failed without the store or by a form."""
    running, _ = healing

    assert b"of the form" in airflow_logs(running)
    assert len(running.runtime.store.list("")) >= 10
    assert written_secrets(running) == []


def ids(numbers: Iterable[int], rule: str, target: str) -> set[str]:
    """Return the webhook-ids of a target's deliveries of the events with some numbers."""
    return {delivery_of("orders", number, rule, target) for number in numbers}


def dead_claims(running: RunningEnvironment) -> int:
    """Return the number of dead letters of the claims in committed batches."""
    if running.runtime.ledger.batches.unfinished(_RUNNER) is not None:
        return 0
    return sum(1 for _ in dead_letters(running.runtime, Selection(rule="claims")))


def state_of_crm(running: RunningEnvironment) -> str:
    """Return the state of the target `crm`."""
    status = running.runtime.ledger.targets.statuses().get(("partners", "crm"))
    return status.state if status is not None else "ok"


def kill(running: RunningEnvironment, service: str) -> None:
    """Kill a service and all its descendants by SIGKILL, like the loss of a host or container.

    Killing the process group would spare tasks, which have their own groups.
    """
    leader = psutil.Process(running.services.groups[service])
    for process in [leader, *leader.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def has_low_priority_task(running: RunningEnvironment) -> bool:
    """Return whether a task has a lower priority than its scheduler."""
    scheduler = psutil.Process(running.services.groups["scheduler"])
    usual = scheduler.nice()
    for process in scheduler.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.nice() == min(19, usual + NICENESS):
                return True
    return False


def set_response(running: RunningEnvironment, status: int) -> None:
    """Make the receiver respond to the claims with a status from now on."""
    httpx.get(f"http://127.0.0.1:{running.config.receiver_port}/script/{status}/claims").raise_for_status()


def out_of_order(running: RunningEnvironment) -> list[str]:
    """Return the sources of which the ordered target first got an event after a later one."""
    number_of = {delivery_of("orders", number, "partners", "account"): number for number in range(130)}
    came: dict[str, list[int]] = defaultdict(list)
    for name in dict.fromkeys(running.requests("/healthy/account")):
        came[source_of(number_of[name])].append(number_of[name])
    return [source for source, numbers in came.items() if numbers != sorted(numbers)]


def taken_too_early(running: RunningEnvironment, backlog: Iterable[PendingDeliveries]) -> list[str]:
    """Return the rows of the backlog that a retry batch took before rows that were due earlier.

    Rows in progress when the scheduler died, and probes, are not counted.
    """
    ledger = running.runtime.ledger
    status = ledger.targets.statuses()["partners", "crm"]
    closed = {row.pending_id: row.closed_by for row in ledger.pending.find()}
    turns = []
    for row in backlog:
        batch = ledger.batches.get(closed[row.pending_id] or "")
        if row.taken_by is None and batch.planned_at >= status.since:
            turns.append((batch.planned_at, row.due_at))
    wrong = []
    for planned_at, due_at in turns:
        earlier = [other for other in turns if other[0] > planned_at and other[1] < due_at]
        wrong += [f"due {due_at}, taken {planned_at}, before one due {each[1]}" for each in earlier]
    return wrong


def operational_events(running: RunningEnvironment) -> list[dict[str, Any]]:
    """Return the events about targets on the bus `eventbridge`."""
    with closing(running.runtime.open_source(OPERATIONS_BUS)) as bus:
        (partition,) = bus.partitions()
        events = [json.loads(message.body) for message in messages_of(bus.read(partition, 0, bus.end(partition)))]
    return [event for event in events if event["type"].startswith("target.")]
