"""Handovers of streaming tasks in a real Airflow: at the end of a task, after kill -9, and from a suspended task.

Part of `make test-deep`, as a streaming task takes a minute. Each test prints its measurement with the goal, and fails
only for lost events, a wrong reconciliation, or a time far above the goal, as times depend on the machine.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

import psutil
import pytest
from end_to_end.running import RunningEnvironment

from eventbridge.pipeline.settle.settlement import read_settled_as

pytestmark = pytest.mark.timeout(900)

QUICK = "quick"
PATH = "/healthy/quick"
#: Events with this number or a larger one also go to a separate target, which responds after three seconds.
SLOW = 1_000_000
SLOW_PATH = "/delay/3000"

#: Goals in seconds: the latest response at a handover, and the next one after the death of the task or its supervisor.
CHANGE, TASK, SUPERVISOR = 0.3, 3.0, 8.0

_SECONDS = 150.0
_ROUNDS = 5
#: A DAG run that starts after the former one has ended takes two seconds; a handover must be faster.
_MAX_SECONDS = 1.5
#: Longer than Airflow takes to notice a dead supervisor.
_TOO_LONG_SECONDS = 25.0


@pytest.fixture(scope="module")
def loops() -> Mapping[str, str]:
    """The scheduler loops as often as the demo's, for which the goals hold."""
    return {}


def test_streaming_tasks_are_handed_over_while_events_come(directed: RunningEnvironment) -> None:
    """At least two handovers; each event is delivered once, and faster than a DAG run starts."""
    holders: dict[str, float] = {}
    began, number = time.monotonic(), 0
    while time.monotonic() - began < _SECONDS:
        directed.publish(QUICK, range(number, number + 1))
        number += 1
        lease = directed.runtime.ledger.streaming.lease(QUICK)
        if lease is not None:
            holders.setdefault(lease.holder, time.monotonic() - began)
        time.sleep(0.05)
    runs = directed.runs("eventbridge_deliver_quick")
    until_reconciled(directed)

    late = sorted(_late(directed))
    since = sorted(holders.values())
    sys.stdout.write(
        f"\n{number} events, {len(holders)} streaming tasks begun after {[round(each, 1) for each in since]} s, "
        f"{len(runs)} runs; p50 {late[len(late) // 2] * 1e3:.0f} ms, the latest ten "
        f"{[round(each * 1e3) for each in late[-10:]]} ms\n"
    )
    print_measurement("latest response over handovers", late[-1:], CHANGE)
    assert len(holders) >= 3
    assert len(set(directed.requests(PATH))) == len(directed.requests(PATH)) == number
    assert late[-1] <= _MAX_SECONDS
    assert directed.differences() == []


def _late(directed: RunningEnvironment) -> list[float]:
    """Return the latency of each event, except for those of the first 20 s."""
    runtime, found = directed.runtime, []
    for batch in runtime.ledger.batches.find(limit=None, runner=QUICK):
        for _, table in read_settled_as(runtime, batch.batch_id, ["delivered"], ["published_at", "settled_at"]):
            found += [(row["published_at"], row["settled_at"]) for row in table.to_pylist()]
    first = min(published for published, _ in found)
    return [(at - published).total_seconds() for published, at in found if (published - first).total_seconds() > 20]


def test_a_killed_task_is_replaced_at_once(directed: RunningEnvironment) -> None:
    """The watcher starts a run as soon as the process has ended, or Airflow retries the task; nothing is lost."""
    took = [after_kill(directed, 100_000 + 10 * number, supervisor=False) for number in range(_ROUNDS)]

    print_measurement("next response after kill -9 of the task", took, TASK)
    assert max(took) < _TOO_LONG_SECONDS
    until_reconciled(directed)
    assert directed.differences() == []


def test_a_task_that_is_killed_with_its_supervisor_is_replaced(directed: RunningEnvironment) -> None:
    """A second run starts long before Airflow notices that the first one is dead."""
    took = [after_kill(directed, 200_000 + 10 * number, supervisor=True) for number in range(2)]

    print_measurement("next response after kill -9 of task and supervisor", took, SUPERVISOR)
    assert max(took) < _TOO_LONG_SECONDS
    until_reconciled(directed)
    assert directed.differences() == []


def test_only_one_of_two_concurrent_runs_delivers(directed: RunningEnvironment) -> None:
    """A run that is triggered beside a streaming task takes no events and ends; each event is delivered once."""
    task = at_work(directed, 300_000)
    requests = len(directed.requests(PATH))
    before = distinct(directed)
    run_id = directed.trigger("eventbridge_deliver_quick")
    number = 300_001
    while (state := run_of(directed, run_id)) not in ("success", "failed"):
        directed.publish(QUICK, range(number, number + 1))
        number += 1
        time.sleep(0.05)
    directed.until("all are delivered", lambda: distinct(directed) >= before + number - 300_001)

    assert state == "success"
    assert holder(directed) == task.pid, "the first task still has the lease"
    sent = len(directed.requests(PATH)) - requests
    assert sent == distinct(directed) - before == number - 300_001, warnings(directed)
    until_reconciled(directed)
    assert directed.differences() == []


def test_a_task_that_was_suspended_during_a_push_has_lost_its_lease(directed: RunningEnvironment) -> None:
    """Another run continues; the resumed task changes nothing, and only requests in flight are repeated."""
    task = at_work(directed, 400_000)
    before = distinct(directed)
    directed.publish(QUICK, range(SLOW, SLOW + 3))
    directed.until("they are sent, to the quick one too", lambda: distinct(directed) >= before + 3)
    task.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    directed.publish(QUICK, range(400_001, 400_002))
    directed.until("another run delivers", lambda: distinct(directed) >= before + 4)
    took = time.monotonic() - began
    other = holder(directed)
    task.send_signal(signal.SIGCONT)
    task.wait(60)
    directed.publish(QUICK, range(400_002, 400_012))
    directed.until("the other run continues", lambda: distinct(directed) >= before + 14)
    until_reconciled(directed)

    late = directed.requests(SLOW_PATH)
    print_measurement("next response after a task was suspended", [took], SUPERVISOR)
    sys.stdout.write(f"{len(late) - len(set(late))} of 3 deliveries in flight were repeated\n")
    assert other != task.pid
    assert len(set(late)) == 3
    assert len(late) <= 6
    assert directed.differences() == []


def after_kill(directed: RunningEnvironment, number: int, *, supervisor: bool) -> float:
    """Kill the streaming task, and return the seconds until the next event is delivered."""
    task = at_work(directed, number)
    watched = [parent] if supervisor and (parent := task.parent()) is not None else []
    seen = distinct(directed)
    for each in [*watched, task]:
        each.kill()
    began = time.monotonic()
    directed.publish(QUICK, range(number + 1, number + 2))
    while distinct(directed) <= seen:
        assert time.monotonic() - began < 3 * _TOO_LONG_SECONDS, directed.diagnosis()
        time.sleep(0.02)
    return time.monotonic() - began


def at_work(directed: RunningEnvironment, number: int) -> psutil.Process:
    """Publish an event, wait until it is delivered, and return the process with the lease."""
    seen = distinct(directed)
    directed.publish(QUICK, range(number, number + 1))
    directed.until("a streaming task delivers", lambda: distinct(directed) > seen)
    directed.until("it has an open batch", lambda: directed.runtime.ledger.batches.find(state="open"))
    return psutil.Process(holder(directed))


def holder(directed: RunningEnvironment) -> int:
    """Return the id of the process with the lease."""
    lease = directed.until("a process has the lease", lambda: directed.runtime.ledger.streaming.lease(QUICK))
    return int(lease.holder.split(":")[1])


def distinct(directed: RunningEnvironment) -> int:
    """Return the number of distinct events that the quick target got."""
    return len(set(directed.requests(PATH)))


def warnings(directed: RunningEnvironment) -> list[str]:
    """Return the warnings in the logs of the runner's tasks, which explain duplicates."""
    logs = (directed.config.airflow_home / "logs").glob("dag_id=eventbridge_deliver_quick/*/task_id=streaming/*.log")
    found = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return [line[:400] for line in found if '"level":"warning"' in line or '"level":"error"' in line]


def run_of(directed: RunningEnvironment, run_id: str) -> str:
    """Return the state of a run of the runner."""
    return str(directed.airflow.call("GET", f"/dags/eventbridge_deliver_quick/dagRuns/{run_id}")["state"])


def until_reconciled(directed: RunningEnvironment) -> None:
    """Wait until the streaming task has ended without events, and its batches are committed."""
    directed.until("its streaming task ends", lambda: directed.runtime.ledger.streaming.lease(QUICK) is None)
    directed.until("it is reconciled", lambda: directed.runtime.ledger.batches.unfinished(QUICK) is None)
    directed.until_settled()


def print_measurement(what: str, took: Sequence[float], goal: float) -> None:
    """Print a measurement with the goal and the load."""
    status = "met" if max(took) <= goal else "NOT MET"
    times = ", ".join(f"{each:.2f}" for each in took)
    sys.stdout.write(f"{what}: {times} s; goal {goal:g}: {status}; load {os.getloadavg()[0]:.1f}\n")
