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
from eventbridge.stages.route_job import RouteJob, Slice, SliceResult
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
    while missing := recording.missing():
        if not recording.record(_Suspect(work, job, router, canary, missing[0]).routed()):
            return False
    return True


class _Suspect:
    def __init__(self, work: Workplace, job: RouteJob, router: Router, canary: Canary, piece: Slice) -> None:
        self._work = work
        self._batch_id = job.batch_id
        self._job = job
        self._router = router
        self._canary = canary
        self._piece = piece

    def routed(self) -> BatchFile:
        """Return the record of the slice: its result, that it was split, or that its one event is unroutable."""
        one_event = self._piece.row_to - self._piece.row_from == 1
        error = "no try of it was ever heard of again"
        while self._work.ledger.begin_try(self._batch_id, self._piece.slice_id) <= _TRIES:
            try:
                return result_file(self._batch_id, self._alone())
            except SparkError as failure:
                self._blame(failure)
                error = str(failure)
            if not one_event:
                break
        if one_event:
            where = f"row {self._piece.row_from} of {self._piece.file}"
            log.error("ALARM the event in %s cannot be routed, it becomes a dead letter: %s", where, error)
            return unroutable_file(self._batch_id, self._piece, error)
        log.warning("batch %s: slice %s is split: %s", self._batch_id, self._piece.slice_id, error)
        return split_file(self._batch_id, self._piece)

    def _alone(self) -> SliceResult:
        results = list(self._router.route_slices(self._job.anew(), [self._piece]))
        if [result.slice_id for result in results] != [self._piece.slice_id]:
            raise SparkError(f"slice {self._piece.slice_id} came back without a result.")
        return results[0]

    def _blame(self, failure: SparkError) -> None:
        """Return if a failure is the slice's own; otherwise take the try back and raise what is at fault."""
        try:
            self._canary.require(failure)
            # The workers read these files too: one that is damaged is the store's fault, not an event's.
            read_rows(
                self._work.store, self._piece.file, rowset.encode(range(self._piece.row_from, self._piece.row_to))
            )
            self._work.store.get(layout.rule_set(self._job.rule_set))
        except BaseException:
            self._work.ledger.take_back_try(self._batch_id, self._piece.slice_id)
            raise


def result_file(batch_id: str, result: SliceResult) -> BatchFile:
    """Return the record of a slice that was routed."""
    return BatchFile(batch_id, "delivery", result.slice_id, result.path, result.rows, result.detail)
