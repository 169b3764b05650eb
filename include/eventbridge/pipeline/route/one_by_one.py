"""Routes suspected slices one at a time: a slice that fails by itself is split, down to the event that fails.

Called by route after a Spark job failed or disappeared; `route_tries` defines what a failure proves.
"""

from __future__ import annotations

import logging
from typing import Protocol

from eventbridge.model.batch import BatchFile
from eventbridge.model.file_detail import RoutedShare, RoutedSlice
from eventbridge.pipeline.route.canary import Canary
from eventbridge.pipeline.route.split import split_file, unroutable_file
from eventbridge.pipeline.route.tries import is_one_event, try_alone
from eventbridge.routing.job import RouteJob, Router, Slice, SliceResult
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)


class Recording(Protocol):
    """The recorded results of a batch, and the missing ones."""

    def missing(self) -> list[Slice]:
        """Return the slices, or parts of split slices, without a result."""

    def record(self, file: BatchFile) -> bool:
        """Record the result of a slice; False: the batch is no longer `buffered`."""


def route_one_by_one(runtime: Runtime, job: RouteJob, router: Router, canary: Canary, recording: Recording) -> bool:
    """Route and record missing slices one after the other, splitting those that fail; False: the batch has moved on.

    Call it just after the canary has routed. Raises SparkError if the canary no longer routes, and StoreError for a
    slice whose file cannot be read.
    """
    while missing := recording.missing():
        if not recording.record(_routed(runtime, job, router, canary, missing[0])):
            return False
    return True


def _routed(runtime: Runtime, job: RouteJob, router: Router, canary: Canary, piece: Slice) -> BatchFile:
    """Return the record of a slice: its result, its split, or that its only event is unroutable."""
    outcome = try_alone(runtime, job, router, canary, piece)
    if isinstance(outcome, SliceResult):
        return result_file(job.batch_id, outcome)
    if is_one_event(piece):
        where = f"row {piece.row_from} of {piece.file}"
        log.error("ALARM the event in %s cannot be routed, it becomes a dead letter: %s", where, outcome)
        return unroutable_file(job.batch_id, piece, outcome)
    log.warning("batch %s: slice %s is split: %s", job.batch_id, piece.slice_id, outcome)
    return split_file(job.batch_id, piece)


def result_file(batch_id: str, result: SliceResult) -> BatchFile:
    """Return the record of a routed slice."""
    assert isinstance(result.detail, RoutedSlice | RoutedShare), "a slice or a share was asked for"
    return BatchFile(batch_id, "delivery", result.slice_id, result.path, result.rows, result.detail)
