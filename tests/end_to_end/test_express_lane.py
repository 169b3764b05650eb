"""A runner of the mode express in a real Airflow: events are delivered as they come, whatever is killed."""

from __future__ import annotations

import os
import signal
import time

from end_to_end.running import Running

RUNNER = "quick"


def holder(running: Running) -> int:
    """Wait for a shift that delivers, and return the number of its process."""
    running.until("a shift has a window open", lambda: running.work.ledger.batches(state="open"))
    shift = running.until("somebody has the shift", lambda: running.work.ledger.shift(RUNNER))
    return int(shift.holder.split(":")[1])


def test_events_are_delivered_as_they_come_and_a_killed_task_loses_none(directed: Running) -> None:
    """The first wakes a shift, those after it take no run; after kill -9 the task is back and finishes its window."""
    directed.publish(RUNNER, range(1))
    directed.until("the first is delivered", lambda: len(directed.requests("/healthy/quick")) == 1)
    first = holder(directed)
    runs = len(directed.runs("deliver_quick"))

    seconds = []
    for number in range(1, 11):
        began = time.monotonic()
        directed.publish(RUNNER, range(number, number + 1))
        directed.until("it is delivered", lambda number=number: len(directed.requests("/healthy/quick")) > number)
        seconds.append(time.monotonic() - began)
    os.kill(first, signal.SIGKILL)
    directed.publish(RUNNER, range(11, 21))
    directed.until("another process has the shift", lambda: holder(directed) != first)
    directed.until("all are delivered", lambda: len(set(directed.requests("/healthy/quick"))) == 21)
    second = holder(directed)
    directed.publish(RUNNER, range(21, 22))
    directed.until("that delivers as well", lambda: len(set(directed.requests("/healthy/quick"))) == 22)

    assert second != first
    assert sorted(seconds)[5] < 1.0, seconds  # a DAG run takes two
    assert len(directed.runs("deliver_quick")) == runs
    directed.until("its shift ends, as nothing comes", lambda: directed.work.ledger.shift(RUNNER) is None)
    directed.until("its books are closed", lambda: directed.work.ledger.unfinished_batch(RUNNER) is None)
    assert directed.differences() == []
