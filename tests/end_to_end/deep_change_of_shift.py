"""Changes of shift in a real Airflow: the bell starts the run that stands by, and no answer waits for it.

Part of `make test-deep`: a shift lasts for a minute.
"""

from __future__ import annotations

import sys
import time

import psutil
import pytest
from end_to_end.running import Running

from eventbridge.stages.settle.settlement import settled_as

pytestmark = pytest.mark.timeout(900)

QUICK = "quick"
_SECONDS = 150.0
#: A DAG run that begins when the former one has ended takes two seconds; what the change itself takes is told.
_MOST_SECONDS = 1.5


def test_shifts_change_while_events_come(directed: Running) -> None:
    """Twice at least, each event once, none later than a fraction of what the start of a DAG run takes."""
    holders: dict[str, float] = {}
    began, number = time.monotonic(), 0
    while time.monotonic() - began < _SECONDS:
        directed.publish(QUICK, range(number, number + 1))
        number += 1
        shift = directed.work.ledger.shift(QUICK)
        if shift is not None:
            holders.setdefault(shift.holder, time.monotonic() - began)
        time.sleep(0.05)
    runs = directed.runs("deliver_quick")
    directed.until("its shift ends, as nothing comes", lambda: directed.work.ledger.shift(QUICK) is None)
    directed.until("its books are closed", lambda: directed.work.ledger.unfinished_batch(QUICK) is None)

    late = sorted(_late(directed))
    since = sorted(holders.values())
    sys.stdout.write(
        f"{number} events, {len(holders)} shifts begun after {[round(each, 1) for each in since]} s, "
        f"{len(runs)} runs; p50 {late[len(late) // 2] * 1e3:.0f} ms, the latest ten "
        f"{[round(each * 1e3) for each in late[-10:]]} ms\n"
    )
    assert len(holders) >= 3
    assert len(set(directed.requests("/healthy/quick"))) == len(directed.requests("/healthy/quick")) == number
    assert late[-1] <= _MOST_SECONDS
    assert directed.differences() == []


def _late(directed: Running) -> list[float]:
    """Return how long after it was published each event was answered, but for those that the first shift began with."""
    work, found = directed.work, []
    for batch in work.ledger.batches(limit=None, runner=QUICK):
        for _, table in settled_as(work, batch.batch_id, ["Delivered"], ["published_at", "settled_at"]):
            found += [(row["published_at"], row["settled_at"]) for row in table.to_pylist()]
    first = min(published for published, _ in found)
    return [(at - published).total_seconds() for published, at in found if (published - first).total_seconds() > 20]


def test_a_task_that_is_killed_with_its_supervisor_is_taken_over(directed: Running) -> None:
    """A second run begins once the lease has run out, long before Airflow sees that the first one is dead."""
    before = len(directed.requests("/healthy/quick"))
    directed.publish(QUICK, range(10_000, 10_001))
    directed.until("a shift delivers", lambda: len(directed.requests("/healthy/quick")) == before + 1)
    shift = directed.until("it has a window", lambda: directed.work.ledger.shift(QUICK))
    task = psutil.Process(int(shift.holder.split(":")[1]))
    supervisor = task.parent()
    assert supervisor is not None
    for each in (supervisor, task):
        each.kill()
    began = time.monotonic()
    directed.publish(QUICK, range(10_001, 10_002))
    directed.until("the next one delivers", lambda: len(set(directed.requests("/healthy/quick"))) == before + 2)
    took = time.monotonic() - began

    sys.stdout.write(f"answered {took:.1f} s after task and supervisor were killed\n")
    assert took < 20
    directed.until("its shift ends, as nothing comes", lambda: directed.work.ledger.shift(QUICK) is None)
    directed.until("its books are closed", lambda: directed.work.ledger.unfinished_batch(QUICK) is None)
    assert directed.differences() == []
