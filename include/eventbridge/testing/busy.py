"""Provides a route that records when it ran, for tests of the distribution of Spark's task slots."""

from __future__ import annotations

import os
import time
from typing import NamedTuple
from urllib.parse import quote

from msgspec import json

from eventbridge.routing.job import RouteJob, SliceResult, Task
from eventbridge.routing.task import route_task
from eventbridge.rules import RuleSet
from eventbridge.store.protocol import Store

#: The number of additional CPU-seconds of each slice.
_BUSY_SECONDS = 0.15


class SliceRun(NamedTuple):
    """When a slice began and ended, in seconds since 1970, and its worker's nice value."""

    began: float
    ended: float
    niceness: int = 0


def route_and_note(store: Store, rule_set: RuleSet, job: RouteJob, task: Task) -> SliceResult:
    """Route like `route_task`, but more slowly, and write times and priority to the store."""
    began, busy = time.time(), time.process_time()
    result = route_task(store, rule_set, job, task)
    while time.process_time() - busy < _BUSY_SECONDS:
        pass
    note = json.encode(SliceRun(began, time.time(), os.nice(0)))
    store.create(f"ran/{job.attempt}/{quote(task.slice_id, safe='')}", note)
    return result


def noted(store: Store, job: RouteJob) -> list[SliceRun]:
    """Return the runs of finished slices of a job, ordered by their start."""
    return sorted(SliceRun(*json.decode(store.get(path))) for path in store.list(f"ran/{job.attempt}/"))
