"""Counts tries of route before they are made, and decides with a canary whose fault a failure is.

A task that fails while a canary routes on the same Spark before and after it is proved to fail. If Spark is gone after
a try, the task may have killed it, or something else did, and the two cannot be distinguished. Such a coincidence
counts only if Spark worked before the try - a canary routes before every try after the first - and only several of them
are a verdict. Without Spark nothing is counted beyond that first try.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from eventbridge.errors import SparkError
from eventbridge.model import rowset
from eventbridge.pipeline.route.canary import Canary
from eventbridge.routing.job import BatchTask, RouteJob, Router, Slice, SliceResult
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows

log = logging.getLogger(__name__)

#: Keys under which tries of all missing slices, or shares, at once are counted.
ALL_SLICES = ""
ALL_SHARES = "rule/"

#: Tries of many tasks at once that ended their process, or Spark, before each task is tried alone.
_AT_ONCE = 3
#: The same for one event, or one rule's share, alone. A slice of several events is split after the first try: that
#: costs less than another try, and the parts will show the cause.
_ALONE = 3
#: Proven failures of one event or one rule's share before it is given a verdict.
_FAILURES = 2

_UNHEARD = "no try of it returned: each ended its process, or the Spark that had worked before it"


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

    None: the job failed, or failed too often before, although a canary routes now: missing tasks must be tried alone.
    Raises SparkError if the canary fails as well.
    """
    tries = runtime.ledger.begin_try(job.batch_id, key)
    lost = False
    try:
        if tries > 1:
            canary.require()
        if tries > _AT_ONCE:
            log.warning(
                "batch %s: its tasks are tried one at a time, because all at once they ended Spark", job.batch_id
            )
            return None
        try:
            with closing(_results(router, job, tasks)) as results:
                return all(record(result) for result in results)
        except SparkError as failure:
            lost = _is_spark_lost(canary, failure)
            if lost:
                raise
            log.warning(
                "batch %s: its tasks are tried one at a time, because together they failed: %s", job.batch_id, failure
            )
            return None
    finally:
        if not lost:
            runtime.ledger.take_back_try(job.batch_id, key)


def try_alone(
    runtime: Runtime, job: RouteJob, router: Router, canary: Canary, task: BatchTask, before: int = 0
) -> SliceResult | str:
    """Return the result of a task, or the error once it has failed by itself often enough.

    `before`: tries that an earlier batch counted. Raises SparkError if the canary fails as well, and StoreError if a
    file of the task cannot be read.
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
    """Return whether a slice cannot be split further."""
    return piece.row_to - piece.row_from == 1


def _is_spark_lost(canary: Canary, failure: SparkError) -> bool:
    """Return whether Spark is gone, or routes nothing any more, after a task failed."""
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
    """Read what the worker had to read: a damaged file is the store's fault, not an event's."""
    runtime.store.get(layout.rule_set(job.rule_set))
    if isinstance(task, Slice):
        read_rows(runtime.store, task.file, rowset.encode(range(task.row_from, task.row_to)))
        return
    for file, rows in task.files:
        read_rows(runtime.store, file, rows)


def _results(router: Router, job: RouteJob, tasks: Sequence[BatchTask]) -> Generator[SliceResult, None, None]:
    # A generator, because a router may return any iterator, and only generators have close().
    yield from router.route_slices(job, tasks)
