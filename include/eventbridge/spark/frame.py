"""Builds the Spark job that routes slices: each task reads its rows, matches, transforms, writes files and returns a
row."""

from __future__ import annotations

import faulthandler
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa

from eventbridge.config.connection import Connection, connections_from_environment
from eventbridge.errors import ConnectionUnusable
from eventbridge.processes import OLD_NICENESS, lower_priority_once
from eventbridge.routing.job import JobTasks, RouteJob, RouteTask, RuleShare, SliceResult, Task
from eventbridge.routing.program import KEPT_PROGRAMS
from eventbridge.routing.task import route_task
from eventbridge.routing.warm_up import compile_ahead
from eventbridge.rules import RuleSet
from eventbridge.spark.environment import worker_variables
from eventbridge.store import layout
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import frozen_rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

#: The schema of the row that a worker returns per task: the task's result as JSON.
RESPONSE = "result string"


def route_frame(
    spark: SparkSession | ConnectSession,
    job: RouteJob,
    tasks: Sequence[Task],
    *,
    responses_from: int | None = None,
    route: RouteTask = route_task,
) -> DataFrame:
    """Return a frame of the RESPONSE schema; collecting it routes every task in a Spark task of its own.

    If `responses_from` is set, workers also write their responses to the store, numbered from there on, for a driver
    that cannot return rows. `route` routes one task; workers must be able to import it.
    """
    text = JobTasks(job, tuple(tasks)).to_json()
    numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    return numbers.mapInArrow(partial(route_numbers, route, text, responses_from), RESPONSE)


def route_numbers(
    route: RouteTask, text: bytes, responses_from: int | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Route the tasks in `text` with the given numbers, and yield a row of RESPONSE for each.

    It runs in Spark workers. If Spark repeats or duplicates a task, this does no harm, because each run writes files
    with unique names and the driver publishes only one response per slice.
    """
    asked = JobTasks.from_json(text)
    job, tasks = asked.job, asked.tasks
    if job.old:  # before Arrow creates threads, for good, because the worker belongs to the session of old work
        lower_priority_once(OLD_NICENESS)
    # Outside a slice's time limit, because pyarrow imports pandas with its first array, and code is loaded or compiled.
    import pandas  # noqa: F401

    compile_ahead()
    store = open_store(job.store_uri, worker_connection)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            rules = _rules(job.store_uri, job.rule_set)
            with _ending_after(_longest_seconds(job, tasks[number])):
                result = route(store, rules, job, tasks[number])
            _keep(job.rule_set)
            if responses_from is not None:
                keep_response(store, job, responses_from + number, result)
            yield pa.RecordBatch.from_pydict({"result": [result.to_json().decode()]})


def _longest_seconds(job: RouteJob, task: Task) -> float:
    # A share stops when its own CPU budget is spent; on a busy machine, that may take twice as long in wall time.
    return job.slice_seconds + (2 * task.cpu_seconds if isinstance(task, RuleShare) else 0)


@contextmanager
def _ending_after(seconds: float) -> Iterator[None]:
    """End this worker process, with a traceback in Spark's log, if the body takes too long, so that a loop becomes a
    crash.

    Python code cannot block this watchdog. The driver splits the slice whose worker it ended.
    """
    if seconds > 0:
        faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@lru_cache(KEPT_PROGRAMS)  # as many as cached programs; every change of a rule creates another set
def _rules(store_uri: str, rule_set_hash: str) -> RuleSet:
    return frozen_rules(open_store(store_uri, worker_connection), rule_set_hash)


def worker_connection(connection_id: str) -> Connection:
    """Return a connection from Spark's environment or its file of secrets, because jobs carry no secrets.

    Raises ConnectionUnusable if it is not defined there.
    """
    try:
        return connections_from_environment(worker_variables())(connection_id)
    except ConnectionUnusable as error:
        raise ConnectionUnusable(
            f"In the environment of Spark's workers, which Airflow does not see: {error}"
        ) from None


@lru_cache(maxsize=8)
def _keep(rule_set_hash: str) -> None:
    """Exclude a newly compiled rule set from the garbage collection that Spark's worker runs after each task."""
    gc.freeze()


def keep_response(store: Store, job: RouteJob, number: int, result: SliceResult) -> None:
    """Write a worker's response to the store. If two Spark tasks route one slice, the first response counts."""
    store.create(response_path(job, number), result.to_json())


def response_path(job: RouteJob, number: int) -> str:
    """Return the path of the response to the task with this number."""
    return path_beside(job, f"responses/{number:06d}.json")


def path_beside(job: RouteJob, name: str) -> str:
    """Return the path of a file in the folder with the delivery files of one attempt at a job."""
    return str(PurePosixPath(layout.deliveries(job.planned_at, job.batch_id, job.attempt, "x")).parent) + f"/{name}"
