"""Routes slices on a Spark Connect server."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from eventbridge.errors import SparkError
from eventbridge.routing.job import RouteJob, RouteTask, RuleShare, SliceResult, Task
from eventbridge.routing.share_budget import CROWDED, TotalBudget, deferred
from eventbridge.routing.task import route_task
from eventbridge.rules import Rule
from eventbridge.spark.ask_sql import delete_sql_results, rules_in_sql, with_sql_results
from eventbridge.spark.failure import spark_errors
from eventbridge.spark.frame import route_frame, worker_connection
from eventbridge.spark.session import forget, redact_address, retry_results, rows_of
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

#: The number of seconds between two checks, while Spark computes, whether the process must stop.
_POLL_SECONDS = 0.2


class ConnectRouter:
    """A router on a Spark Connect server, `sc://host:port`.

    `eventbridge` must be installed where its workers run. `route` routes one task there. The driver puts the results of
    Spark SQL into `store`; by default, it is the job's store, opened as a worker opens it. Once `is_stopped` returns
    True, an unfinished job fails with SparkError, even if Spark does not respond; without `is_stopped`, a job runs to
    its end.
    """

    def __init__(
        self,
        url: str,
        route: RouteTask = route_task,
        store: Store | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> None:
        self._url = url
        self._route = route
        self._store = store
        self._is_stopped = is_stopped

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        """Route the tasks and yield their results, those in Spark SQL last, each as a job of its own.

        Raises SparkError if a job fails.
        """
        try:
            with spark_errors(f"Spark at {redact_address(self._url)} did not route batch {job.batch_id}"):
                results = self._route_tasks(job, tasks)
                yield from results if self._is_stopped is None else _iterate_until_stopped(results, self._is_stopped)
        except SparkError:
            forget(self._url, job.runner, old=job.old)
            raise

    def _route_tasks(self, job: RouteJob, tasks: Sequence[Task]) -> Generator[SliceResult, None, None]:
        store = self._store or open_store(job.store_uri, worker_connection)
        rules = rules_in_sql(store, job, tasks)
        plain = [task for task in tasks if task.slice_id not in rules]
        if plain:
            yield from retry_results(self._url, job, lambda spark: self._results(spark, job, plain))
        total = TotalBudget()
        for task in tasks:
            if isinstance(task, RuleShare) and task.slice_id in rules:
                # One rule after the other, each within its own budget. Each result is yielded as soon as it is
                # available.
                if total.is_over(job):
                    yield deferred(task, CROWDED)
                    continue
                began = time.monotonic()
                yield from retry_results(self._url, job, partial(self._query, store, job, rules[task.slice_id], task))
                total.charge(job, (time.monotonic() - began) / 2)  # its budget in wall time is twice the CPU time

    def _query(
        self, store: Store, job: RouteJob, rule: Rule, share: RuleShare, spark: SparkSession
    ) -> Iterator[SliceResult]:
        asked = with_sql_results(spark, store, job, rule, share)
        yield from self._results(spark, job, [asked])
        delete_sql_results(store, asked)

    def _results(self, spark: SparkSession, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        with closing(rows_of(route_frame(spark, job, tasks, route=self._route))) as rows:
            for row in rows:
                yield SliceResult.from_json(row["result"].encode())


def _iterate_until_stopped(
    results: Generator[SliceResult, None, None], is_stopped: Callable[[], bool]
) -> Generator[SliceResult, None, None]:
    """Yield results that another thread collects.

    Once `is_stopped` returns True, raise SparkError and abandon that thread, because the thread that waits for a call
    to Spark cannot interrupt the call.
    """
    found: queue.SimpleQueue[SliceResult | Exception | None] = queue.SimpleQueue()
    abandoned = threading.Event()

    def take() -> None:
        try:
            with closing(results):
                for result in results:
                    found.put(result)
                    if abandoned.is_set():
                        return
            found.put(None)
        except Exception as error:  # raised again by the thread that waits for results
            found.put(error)

    threading.Thread(target=take, name="spark-results", daemon=True).start()
    try:
        while True:
            try:
                result = found.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if is_stopped():
                    raise SparkError("The process was stopped before Spark finished the job.") from None
                continue
            if result is None:
                return
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        abandoned.set()
