"""Routes with spark-submit.

A job file in the store names the slices, and workers write their responses to the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from eventbridge.errors import SparkError, StoreFileMissing
from eventbridge.routing.job import JobTasks, RouteJob, RuleShare, SliceResult, Task
from eventbridge.routing.share_budget import CROWDED, TotalBudget, deferred
from eventbridge.spark.ask_sql import delete_sql_results, rules_in_sql, with_sql_results
from eventbridge.spark.failure import first_error
from eventbridge.spark.frame import keep_response, path_beside, response_path, route_frame, worker_connection
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A function that runs an application with arguments on Spark and returns once it has ended. It raises if the
#: application failed.
Submit = Callable[[str, Sequence[str]], None]


class SubmitRouter:
    """A router that submits `application` (eventbridge.spark.apps.route_events) once per call.

    Every worker writes its response to a file beside the delivery files once a slice is done, so a job that fails half
    way keeps its finished slices.
    """

    def __init__(self, store: Store, application: str, submit: Submit) -> None:
        self._store = store
        self._application = application
        self._submit = submit

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Run the job to its end, then yield the finished slices. Raises SparkError afterwards if the job failed."""
        path = path_beside(job, "job.json")
        self._store.create(path, JobTasks(job, tuple(tasks)).to_json())
        failure = self._run(path)
        for number in range(len(tasks)):  # by name, because listing a bucket is expensive
            with suppress(StoreFileMissing):
                yield SliceResult.from_json(self._store.get(response_path(job, number)))
        if failure is not None:
            text = failure.args[0] if isinstance(failure, SparkError) else first_error(str(failure))
            raise SparkError(f"spark-submit did not route batch {job.batch_id}: {text}") from failure

    def _run(self, path: str) -> Exception | None:
        try:
            self._submit(self._application, [self._store.uri, path])
        except Exception as error:  # any error of the submitter: SparkError, Airflow's exception, OSError
            return error
        return None


def run_job(spark: SparkSession, store_uri: str, path: str) -> int:
    """Route the tasks of a job file and return their number.

    The driver of spark-submit calls it. Tasks without Spark SQL are one Spark job; each other share is evaluated and
    then routed by itself. Raises StoreError if the job file cannot be read, and Spark's errors if a task fails.
    """
    store = open_store(store_uri, worker_connection)
    content = JobTasks.from_json(store.get(path))
    job, tasks = content.job, content.tasks
    rules = rules_in_sql(store, job, tasks)
    plain = [task for task in tasks if task.slice_id not in rules]
    if plain:
        route_frame(spark, job, plain, responses_from=0).collect()
    total = TotalBudget()
    for number, share in enumerate((task for task in tasks if task.slice_id in rules), len(plain)):
        assert isinstance(share, RuleShare)
        if total.is_over(job):
            keep_response(store, job, number, deferred(share, CROWDED))
            continue
        began = time.monotonic()
        asked = with_sql_results(spark, store, job, rules[share.slice_id], share)
        route_frame(spark, job, [asked], responses_from=number).collect()
        delete_sql_results(store, asked)
        total.charge(job, (time.monotonic() - began) / 2)  # its budget in wall time is twice the CPU time
    return len(tasks)
