"""Who takes a streaming task over in a real Airflow, and how soon: at a change, after kill -9, from one that stood
still.

Part of `make test-deep`: a streaming task lasts for a minute. Each test tells what it measured beside the goal, and
fails for lost events, wrong reconciliation, or what takes many times as long: how soon is the machine's affair.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence

import psutil
import pytest
from end_to_end.running import Running

from eventbridge.stages.settle.settlement import settled_as

pytestmark = pytest.mark.timeout(900)

QUICK = "quick"
PATH = "/healthy/quick"
#: An event of such a number goes to a target of its own too, which responds after three seconds.
SLOW = 1_000_000
SLOW_PATH = "/delay/3000"

#: Goals, in seconds: the latest response at a change, the next one after the task died, and after its supervisor did.
CHANGE, TASK, SUPERVISOR = 0.3, 3.0, 8.0

_SECONDS = 150.0
_ROUNDS = 5
#: A DAG run that begins when the former one has ended takes two seconds; what the change itself takes is told.
_MOST_SECONDS = 1.5
#: Longer than Airflow takes to see that a supervisor is gone.
_TOO_LONG_SECONDS = 25.0


def test_streaming_tasks_are_handed_over_while_events_come(directed: Running) -> None:
    """Twice at least, each event once, none later than a fraction of what the start of a DAG run takes."""
    holders: dict[str, float] = {}
    began, number = time.monotonic(), 0
    while time.monotonic() - began < _SECONDS:
        directed.publish(QUICK, range(number, number + 1))
        number += 1
        lease = directed.runtime.ledger.streaming_lease(QUICK)
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
    tell("latest response over handovers", late[-1:], CHANGE)
    assert len(holders) >= 3
    assert len(set(directed.requests(PATH))) == len(directed.requests(PATH)) == number
    assert late[-1] <= _MOST_SECONDS
    assert directed.differences() == []


def _late(directed: Running) -> list[float]:
    """Return how long after its publishing each event got a response, but for those that the first streaming task began
    with.
    """
    runtime, found = directed.runtime, []
    for batch in runtime.ledger.batches(limit=None, runner=QUICK):
        for _, table in settled_as(runtime, batch.batch_id, ["delivered"], ["published_at", "settled_at"]):
            found += [(row["published_at"], row["settled_at"]) for row in table.to_pylist()]
    first = min(published for published, _ in found)
    return [(at - published).total_seconds() for published, at in found if (published - first).total_seconds() > 20]


def test_a_killed_task_is_replaced_at_once(directed: Running) -> None:
    """The watcher starts a run as soon as the process is gone, or Airflow its task again; nothing is lost."""
    took = [after_kill(directed, 100_000 + 10 * number, supervisor=False) for number in range(_ROUNDS)]

    tell("next response after kill -9 of the task", took, TASK)
    assert max(took) < _TOO_LONG_SECONDS
    until_reconciled(directed)
    assert directed.differences() == []


def test_a_task_that_is_killed_with_its_supervisor_is_replaced(directed: Running) -> None:
    """A second run begins long before Airflow sees that the first one is dead."""
    took = [after_kill(directed, 200_000 + 10 * number, supervisor=True) for number in range(2)]

    tell("next response after kill -9 of task and supervisor", took, SUPERVISOR)
    assert max(took) < _TOO_LONG_SECONDS
    until_reconciled(directed)
    assert directed.differences() == []


def test_only_one_of_two_concurrent_runs_delivers(directed: Running) -> None:
    """A run that is triggered beside a streaming task takes nothing from it, and ends; each event comes once."""
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
    assert holder(directed) == task.pid, "who had the lease has it still"
    sent = len(directed.requests(PATH)) - requests
    assert sent == distinct(directed) - before == number - 300_001, warnings(directed)
    until_reconciled(directed)
    assert directed.differences() == []


def test_a_task_that_was_suspended_during_a_push_has_lost_its_lease(directed: Running) -> None:
    """Another run goes on without it; awake, it changes nothing, and only what was on its way comes twice."""
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
    directed.until("the other one goes on", lambda: distinct(directed) >= before + 14)
    until_reconciled(directed)

    late = directed.requests(SLOW_PATH)
    tell("next response after a task stood still", [took], SUPERVISOR)
    sys.stdout.write(f"of 3 deliveries on their way {len(late) - len(set(late))} came twice\n")
    assert other != task.pid
    assert len(set(late)) == 3
    assert len(late) <= 6
    assert directed.differences() == []


def after_kill(directed: Running, number: int, *, supervisor: bool) -> float:
    """Kill who delivers, and return after how many seconds the next event got a response."""
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


def at_work(directed: Running, number: int) -> psutil.Process:
    """Publish an event, wait until it is delivered, and return the process that has the lease."""
    seen = distinct(directed)
    directed.publish(QUICK, range(number, number + 1))
    directed.until("a streaming task delivers", lambda: distinct(directed) > seen)
    directed.until("it has an open batch", lambda: directed.runtime.ledger.batches(state="open"))
    return psutil.Process(holder(directed))


def holder(directed: Running) -> int:
    """Return the number of the process that has the lease."""
    lease = directed.until("somebody has the lease", lambda: directed.runtime.ledger.streaming_lease(QUICK))
    return int(lease.holder.split(":")[1])


def distinct(directed: Running) -> int:
    """Return how many events the quick target was sent, each counted once."""
    return len(set(directed.requests(PATH)))


def warnings(directed: Running) -> list[str]:
    """Return what tasks of the runner warned of: why something came twice."""
    logs = (directed.places.airflow_home / "logs").glob("dag_id=eventbridge_deliver_quick/*/task_id=streaming/*.log")
    found = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return [line[:400] for line in found if '"level":"warning"' in line or '"level":"error"' in line]


def run_of(directed: Running, run_id: str) -> str:
    """Return the state of a run of the runner."""
    return str(directed.airflow.call("GET", f"/dags/eventbridge_deliver_quick/dagRuns/{run_id}")["state"])


def until_reconciled(directed: Running) -> None:
    """Wait until the streaming task has ended, as nothing comes, and its batches are committed."""
    directed.until("its streaming task ends", lambda: directed.runtime.ledger.streaming_lease(QUICK) is None)
    directed.until("it is reconciled", lambda: directed.runtime.ledger.unfinished_batch(QUICK) is None)
    directed.until_settled()


def tell(what: str, took: Sequence[float], goal: float) -> None:
    """Print what was measured, with the goal and the load."""
    verdict = "kept" if max(took) <= goal else "NOT KEPT"
    times = ", ".join(f"{each:.2f}" for each in took)
    sys.stdout.write(f"{what}: {times} s; goal {goal:g}: {verdict}; load {os.getloadavg()[0]:.1f}\n")
