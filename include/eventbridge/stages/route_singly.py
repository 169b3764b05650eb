"""Routes slices one at a time, on suspicion: what fails by itself is split, down to the event that does it.

Called by route after a Spark job failed, or was never heard of again. A failure counts only if a canary routes on the
same Spark before and after it; otherwise Spark is at fault, the stage fails and nothing is counted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from eventbridge import rowset
from eventbridge.errors import SparkError
from eventbridge.ledger.records import BatchFile
from eventbridge.stages.canary import Canary
from eventbridge.stages.route_job import RouteJob, Slice, SliceResult, Task
from eventbridge.stages.split_slice import split_file, unroutable_file
from eventbridge.stages.workplace import Workplace
from eventbridge.store import layout
from eventbridge.store.parquet import read_rows

if TYPE_CHECKING:
    from eventbridge.stages.route import Router

log = logging.getLogger(__name__)

#: An event is given up after so many tries. A slice of several is split after its first failure;
#: or after so many tries that were begun and never heard of again, because the process that counted died with them.
_TRIES = 2


class Recording(Protocol):
    """What of a batch is recorded, and what is missing."""

    def missing(self) -> list[Slice]:
        """Return the slices, or parts of slices that were split, without a result."""

    def record(self, file: BatchFile) -> bool:
        """Record what became of a slice; False: the batch is not `buffered` any more."""


def route_singly(
    work: Workplace, job: RouteJob, router: Router, recording: Recording, failure: SparkError | None = None
) -> bool:
    """Route and record what is missing one after the other, splitting what fails; False: the batch has moved on.

    Raises SparkError (`failure`, if that is why this is called) where the canary does not route either,
    StoreError for a slice whose file cannot be read.
    """
    canary = Canary(work.store, job, router)
    canary.require(failure)
    if failure is not None:
        log.warning("batch %s: its slices are tried one at a time, as together they failed: %s", job.batch_id, failure)
    while missing := recording.missing():
        if not recording.record(_routed(work, job, router, canary, missing[0])):
            return False
    return True


def _routed(work: Workplace, job: RouteJob, router: Router, canary: Canary, piece: Slice) -> BatchFile:
    """Return the record of a slice: its result, that it was split, or that its one event is unroutable."""
    outcome = try_alone(work, job, router, canary, piece)
    if isinstance(outcome, SliceResult):
        return result_file(job.batch_id, outcome)
    if _is_one_event(piece):
        where = f"row {piece.row_from} of {piece.file}"
        log.error("ALARM the event in %s cannot be routed, it becomes a dead letter: %s", where, outcome)
        return unroutable_file(job.batch_id, piece, outcome)
    log.warning("batch %s: slice %s is split: %s", job.batch_id, piece.slice_id, outcome)
    return split_file(job.batch_id, piece)


def try_alone(work: Workplace, job: RouteJob, router: Router, canary: Canary, task: Task) -> SliceResult | str:
    """Return the result of a task or, once it has failed by itself often enough, the error.

    Counts each try in the ledger before it is made. Raises SparkError where the canary fails as well, StoreError where
    a file of the task cannot be read: then nothing is counted.
    """
    error = "no try of it was ever heard of again"
    while work.ledger.begin_try(job.batch_id, task.slice_id) <= _TRIES:
        try:
            return _alone(job, router, task)
        except SparkError as failure:
            try:
                canary.require(failure)
                _read(work, job, task)
            except BaseException:
                work.ledger.take_back_try(job.batch_id, task.slice_id)
                raise
            error = str(failure)
        if isinstance(task, Slice) and not _is_one_event(task):
            break  # to split it costs less than to try it again
    return error


def _alone(job: RouteJob, router: Router, task: Task) -> SliceResult:
    results = list(router.route_slices(job.anew(), [task]))
    if [result.slice_id for result in results] != [task.slice_id]:
        raise SparkError(f"{task.slice_id} came back without a result.")
    return results[0]


def _read(work: Workplace, job: RouteJob, task: Task) -> None:
    """Read what the worker had to read: a file that is damaged is the store's fault, not an event's."""
    work.store.get(layout.rule_set(job.rule_set))
    if isinstance(task, Slice):
        read_rows(work.store, task.file, rowset.encode(range(task.row_from, task.row_to)))
        return
    for file, rows in task.files:
        read_rows(work.store, file, rows)


def _is_one_event(piece: Slice) -> bool:
    return piece.row_to - piece.row_from == 1


def result_file(batch_id: str, result: SliceResult) -> BatchFile:
    """Return the record of a slice that was routed."""
    return BatchFile(batch_id, "delivery", result.slice_id, result.path, result.rows, result.detail)
