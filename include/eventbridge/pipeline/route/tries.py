"""Finds the events and rules that cannot be routed, so that the rest of the batch can be routed.

Every try is counted before it starts, because it may crash the process. After a failure, a canary shows whether Spark
is at fault. A slice that fails when it is tried alone is split, down to the event that fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Protocol

from msgspec import structs

from eventbridge.errors import SparkError
from eventbridge.model import rowset
from eventbridge.model.batch import BatchFile
from eventbridge.model.file_detail import RoutedShare, RoutedSlice, SplitSlice, UnroutableEvent
from eventbridge.routing.job import BatchTask, RouteJob, Router, Slice, SliceResult
from eventbridge.routing.own_event import own_event, own_rules
from eventbridge.rules import Transform
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows, write_table
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules

log = logging.getLogger(__name__)

#: The keys under which joint tries of all missing slices, or all missing shares, are counted.
ALL_SLICES = ""
ALL_SHARES = "rule/"

#: The number of joint tries that may crash their process, or Spark, before each task is tried alone.
_AT_ONCE = 3
#: The maximum number of such tries for a single event, or for one rule's share. A slice of several events is split
#: after the first try, because splitting it takes less time than another try and narrows down the cause.
_ALONE = 3
#: The number of proven failures after which one event, or one rule's share, counts as unroutable.
_FAILURES = 2

_EVERY_TRY_CRASHED = "every try crashed the process, or a Spark server that worked beforehand"


def try_together(
    runtime: Runtime,
    job: RouteJob,
    router: Router,
    canary: Canary,
    key: str,
    tasks: Sequence[BatchTask],
    record: Callable[[SliceResult], bool],
) -> bool | None:
    """Route tasks as one job and record each result; return False if `record` does, because the batch is in another
    state.

    Returns None if the missing tasks must be tried alone, because the job failed, or crashed too often before, although
    the canary can be routed. Raises SparkError if the canary fails as well.
    """
    tries = runtime.ledger.route_tries.begin(job.batch_id, key)
    lost = False
    try:
        if tries > 1:
            canary.require()
        if tries > _AT_ONCE:
            log.warning("batch %s: its tasks are tried one at a time, because joint tries crashed Spark", job.batch_id)
            return None
        try:
            with closing(_results(router, job, tasks)) as results:
                return all(record(result) for result in results)
        except SparkError as failure:
            lost = _is_spark_lost(canary, failure)
            if lost:
                raise
            log.warning(
                "batch %s: its tasks are tried one at a time, because the joint try failed: %s", job.batch_id, failure
            )
            return None
    finally:
        if not lost:
            runtime.ledger.route_tries.take_back(job.batch_id, key)


def try_alone(
    runtime: Runtime, job: RouteJob, router: Router, canary: Canary, task: BatchTask, before: int = 0
) -> SliceResult | str:
    """Return the result of a task that is tried alone, or the error once it has failed often enough.

    `before` is the number of tries of this task that an earlier batch counted. Raises SparkError if the canary fails as
    well, and StoreError if a file of the task cannot be read.
    """
    several = isinstance(task, Slice) and not is_one_event(task)
    failures = 0
    while (tries := runtime.ledger.route_tries.begin(job.batch_id, task.slice_id, before)) <= (
        1 if several else _ALONE
    ):
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
                runtime.ledger.route_tries.take_back(job.batch_id, task.slice_id)
        failures += 1
        if several or failures == _FAILURES:
            return error
    return _EVERY_TRY_CRASHED


def is_one_event(piece: Slice) -> bool:
    """Return whether a slice has a single row, so that it cannot be split further."""
    return piece.row_to - piece.row_from == 1


def _is_spark_lost(canary: Canary, failure: SparkError) -> bool:
    """Return whether Spark is unreachable, or no longer routes anything, after a task failed."""
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
    """Read a task's input to rule out a damaged file as the cause of its failure. Raises StoreError for such a file."""
    runtime.store.get(layout.rule_set(job.rule_set))
    if isinstance(task, Slice):
        read_rows(runtime.store, task.file, rowset.encode(range(task.row_from, task.row_to)))
        return
    for file, rows in task.files:
        read_rows(runtime.store, file, rows)


def _results(router: Router, job: RouteJob, tasks: Sequence[BatchTask]) -> Generator[SliceResult, None, None]:
    # This is a generator because a router may return any iterator, and only generators have close().
    yield from router.route_slices(job, tasks)


class Recording(Protocol):
    """The recorded and the missing results of a batch."""

    def missing(self) -> list[Slice]:
        """Return the slices, or parts of split slices, without a result."""

    def record(self, file: BatchFile) -> bool:
        """Record the result of a slice; return False if the batch is no longer `buffered`."""


def route_one_by_one(runtime: Runtime, job: RouteJob, router: Router, canary: Canary, recording: Recording) -> bool:
    """Route and record missing slices one by one, splitting those that fail; return False if the batch changed state.

    Call it just after the canary has routed. Raises SparkError if the canary no longer routes, and StoreError for a
    slice whose file cannot be read.
    """
    while missing := recording.missing():
        if not recording.record(_route_slice(runtime, job, router, canary, missing[0])):
            return False
    return True


def _route_slice(runtime: Runtime, job: RouteJob, router: Router, canary: Canary, piece: Slice) -> BatchFile:
    """Return the record of a slice, which has its result or its parts, or states that its only event is unroutable."""
    outcome = try_alone(runtime, job, router, canary, piece)
    if isinstance(outcome, SliceResult):
        return result_file(job.batch_id, outcome)
    if is_one_event(piece):
        where = f"row {piece.row_from} of {piece.file}"
        log.error("ALARM the event in %s cannot be routed and becomes a dead letter: %s", where, outcome)
        return unroutable_file(job.batch_id, piece, outcome)
    log.warning("batch %s: slice %s is split: %s", job.batch_id, piece.slice_id, outcome)
    return split_file(job.batch_id, piece)


def result_file(batch_id: str, result: SliceResult) -> BatchFile:
    """Return the record of a routed slice or share."""
    assert isinstance(result.detail, RoutedSlice | RoutedShare), "a slice or a share was asked for"
    return BatchFile(batch_id, "delivery", result.slice_id, result.path, result.rows, result.detail)


#: The number of parts into which a slice is split. With 8, a failing event among 4,000 is found in four steps, among
#: 20,000 in five.
_PARTS = 8


def leaves(piece: Slice, recorded: Mapping[str, BatchFile]) -> Iterator[Slice]:
    """Yield a slice itself or, if it was split, its parts; a part that was split is replaced by its own parts."""
    file = recorded.get(piece.slice_id)
    if file is None or not isinstance(file.detail, SplitSlice):
        yield piece
        return
    for row_from, row_to in file.detail.parts:
        yield from leaves(_part(piece, row_from, row_to), recorded)


def split_file(batch_id: str, piece: Slice) -> BatchFile:
    """Return the record that replaces a slice of several rows by its parts."""
    rows = piece.row_to - piece.row_from
    step = max(1, -(-rows // _PARTS))
    starts = range(piece.row_from, piece.row_to, step)
    parts = tuple((start, min(start + step, piece.row_to)) for start in starts)
    return BatchFile(batch_id, "delivery", piece.slice_id, None, 0, SplitSlice(parts))


def unroutable_file(batch_id: str, piece: Slice, error: str) -> BatchFile:
    """Return the record of a slice whose only event cannot be routed and becomes a dead letter (`route_failed`)."""
    event = UnroutableEvent(piece.file, piece.row_from, error)
    return BatchFile(batch_id, "delivery", piece.slice_id, None, 0, event)


def _part(piece: Slice, row_from: int, row_to: int) -> Slice:
    # The id contains the rows, so that the slices of a batch, sorted by id, are still in order of partition and offset.
    landed, _, _ = piece.slice_id.rpartition("/")
    return Slice(f"{landed}/{row_from:06d}-{row_to:06d}", piece.file, row_from, row_to)


_NAME = "canary"
_EVENT = b'{"specversion": "1.0", "id": "canary", "source": "/canary", "type": "canary", "data": {"sings": true}}'


class Canary:
    """Routes a test event with one rule through a router, in the same way as all other events of a job."""

    def __init__(self, store: Store, job: RouteJob, router: Router) -> None:
        self._store = store
        self._router = router
        self._slice = Slice(_NAME, layout.canary(), 0, 1)
        self._any_job = job

    @cached_property
    def _job(self) -> RouteJob:
        """The canary's job; puts the event and the rule into the store."""
        constant = Transform(form="CONSTANT", value="sings")
        rule_set = freeze_rules(self._store, own_rules(_NAME, {"type": [_NAME]}, {_NAME: constant}))
        if not self._store.exists(layout.canary()):
            write_table(self._store, layout.canary(), own_event(_NAME, _NAME, _EVENT), create=True)
        return structs.replace(self._any_job, rule_set=rule_set, bus=_NAME)

    def require(self, failure: SparkError | None = None) -> None:
        """Return normally if the test event can be routed now.

        Otherwise, Spark is at fault, and the method raises `failure` or, without one, the canary's own error. It raises
        StoreError if the event cannot be stored.
        """
        try:
            results = list(self._router.route_slices(self._job.another_try(), [self._slice]))
        except SparkError as error:
            raise (failure or error) from error
        if [(result.slice_id, result.rows) for result in results] != [(_NAME, 1)]:
            raise failure or SparkError("A test event that can always be routed was not routed. Look at Spark's log.")
