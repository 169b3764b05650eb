"""Tries of route, counted before they are made, and whose fault a failure is: a canary before and after decides.

A task that fails while a canary routes on the same Spark before and after it is proved to fail. Where Spark is gone
after a try, the task may have killed it, or somebody else: nobody can tell the two apart, so it is a coincidence, which
counts only if Spark was there before the try - a canary routes before every try after the first -, and only several of
them are a verdict. Without Spark nothing is counted beyond that first one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from eventbridge.errors import SparkError
from eventbridge.model import rowset
from eventbridge.routing.job import BatchTask, RouteJob, Router, Slice, SliceResult
from eventbridge.stages.route.canary import Canary
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows

log = logging.getLogger(__name__)

#: How the tries are called that were made of all missing slices, or shares, at once.
ALL_SLICES = ""
ALL_SHARES = "rule/"

#: Tries of many tasks at once that ended their process, or after which Spark was gone, before each is tried alone.
_AT_ONCE = 3
#: The same of one event, or one rule's share, alone. A slice of several events is split after the first of them: that
#: costs less than to try it again, and the parts will tell.
_ALONE = 3
#: Proven failures of one event, or one rule's share.
_FAILURES = 2

_UNHEARD = "no try of it was ever heard of again: each ended its process, or the Spark that had been there before it"


def try_together(
    runtime: Runtime,
    job: RouteJob,
    router: Router,
    canary: Canary,
    key: str,
    tasks: Sequence[BatchTask],
    record: Callable[[SliceResult], bool],
) -> bool | None:
    """Route tasks as one job and record each result; False: `record` says that the batch has moved on.

    None: it failed, or failed too often before, though a canary routes now: what is missing has to be tried alone.
    Raises SparkError where the canary fails as well.
    """
    tries = runtime.ledger.begin_try(job.batch_id, key)
    lost = False
    try:
        if tries > 1:
            canary.require()
        if tries > _AT_ONCE:
            log.warning("batch %s: its tasks are tried one at a time, as all at once they ended Spark", job.batch_id)
            return None
        try:
            with closing(_results(router, job, tasks)) as results:
                return all(record(result) for result in results)
        except SparkError as failure:
            lost = _is_spark_lost(canary, failure)
            if lost:
                raise
            log.warning(
                "batch %s: its tasks are tried one at a time, as together they failed: %s", job.batch_id, failure
            )
            return None
    finally:
        if not lost:
            runtime.ledger.take_back_try(job.batch_id, key)


def try_alone(
    runtime: Runtime, job: RouteJob, router: Router, canary: Canary, task: BatchTask, before: int = 0
) -> SliceResult | str:
    """Return the result of a task or, once it has failed by itself often enough, the error.

    `before`: tries of it that an earlier batch counted. Raises SparkError where the canary fails as well, StoreError
    where a file of the task cannot be read.
    """
    several = isinstance(task, Slice) and not is_one_event(task)
    failures = 0
    while (tries := runtime.ledger.begin_try(job.batch_id, task.slice_id, before)) <= (1 if several else _ALONE):
        counts = False
        try:
            if tries > 1 and not failures:
                canary.require()
            try:
                result = _alone(job, router, task)
                counts = True
                return result
            except SparkError as failure:
                _read_input(runtime, job, task)
                if counts := _is_spark_lost(canary, failure):
                    raise
                error, counts = str(failure), True
        finally:
            if not counts:
                runtime.ledger.take_back_try(job.batch_id, task.slice_id)
        failures += 1
        if several or failures == _FAILURES:
            return error
    return _UNHEARD


def is_one_event(piece: Slice) -> bool:
    """Say whether a slice cannot be split any more."""
    return piece.row_to - piece.row_from == 1


def _is_spark_lost(canary: Canary, failure: SparkError) -> bool:
    """Say whether Spark is gone, or routes nothing any more, after a task failed."""
    try:
        canary.require(failure)
    except SparkError:
        return True
    return False


def _alone(job: RouteJob, router: Router, task: BatchTask) -> SliceResult:
    results = list(router.route_slices(job.another_try(), [task]))
    if [result.slice_id for result in results] != [task.slice_id]:
        raise SparkError(f"{task.slice_id} came back without a result.")
    return results[0]


def _read_input(runtime: Runtime, job: RouteJob, task: BatchTask) -> None:
    """Read what the worker had to read: a file that is damaged is the store's fault, not an event's."""
    runtime.store.get(layout.rule_set(job.rule_set))
    if isinstance(task, Slice):
        read_rows(runtime.store, task.file, rowset.encode(range(task.row_from, task.row_to)))
        return
    for file, rows in task.files:
        read_rows(runtime.store, file, rows)


def _results(router: Router, job: RouteJob, tasks: Sequence[BatchTask]) -> Generator[SliceResult, None, None]:
    # A generator of our own: a router may give any iterator, and only generators have close().
    yield from router.route_slices(job, tasks)
