"""Pushes one chunk: sends its deliveries to all targets in parallel, and makes every response durable before the
response counts.

A mapped Airflow task calls `push` once for each chunk; `eventbridge deliver` pushes a few chunks at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import pyarrow as pa

from eventbridge.delivery.engine import NOTICE_SECONDS, TICK_SECONDS, TargetRuns
from eventbridge.delivery.garbage_collection import rare_garbage_collection
from eventbridge.delivery.outstanding import TargetReport, read_pieces, select_outstanding
from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.segments import (
    BestOutcome,
    Responses,
    is_of_streaming_task,
    responses_in,
    segments,
    write_segment,
)
from eventbridge.delivery.threads import THREADS_AT_ONCE, SharedFlushes, Threads
from eventbridge.ledger.chunks import ChunkEnd
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, ChunkState
from eventbridge.runtime.claims import claim, keeping
from eventbridge.runtime.instrumented import instrumented, report_ended
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.telemetry.protocol import NO_TELEMETRY, PushEnded, TargetPushed

#: The seconds that a finished push waits for its targets to close their connections. This time is long enough unless a
#: host name is still being resolved.
_JOIN_SECONDS = 0.5


@dataclass(frozen=True)
class PushReport:
    """The result of one push of one chunk; all numbers are 0 if there was nothing to do."""

    claimed: bool = False
    delivered: int = 0
    dead_lettered: int = 0
    retried: int = 0
    left: int = 0
    targets: tuple[TargetReport, ...] = field(default=())


@instrumented("push")
def push(
    runtime: Runtime,
    batch_id: str,
    chunk_id: int,
    stop: Stop | None = None,
    only: Collection[tuple[str, str]] | None = None,
    of_streaming_task: Responses | None = None,
) -> PushReport:
    """Deliver the rest of a chunk within the push budget, or until `stop` is set.

    The budget begins once the deliveries have been read. If `only`, a set of (rule, target), is given, deliveries to
    other targets get no outcome. `of_streaming_task` holds the responses in the segments of a streaming task, if they
    have already been read.

    The function does nothing unless the batch has been routed and its deadline has not passed. It waits while another
    push is working on the chunk. A push that loses its claim because its process was suspended stops, and records its
    requests in flight as sent.

    After the other targets have been served, the function raises the first error that does not concern a single
    delivery, for example an error of the store or the ledger, or of a target that cannot be opened.
    """
    batch = runtime.ledger.batches.get(batch_id)
    now = runtime.clock()
    if batch.state != "routed" or batch.deadline_at is None or now >= batch.deadline_at:
        return PushReport()
    stop = PushStop(stop or Stop())
    chunk = claim(runtime, batch, chunk_id, stop)
    if chunk is None:
        return PushReport()
    with keeping(runtime, chunk, on_lost=stop.set_at_once), rare_garbage_collection():
        report = _Push(runtime, batch, chunk, stop, only, of_streaming_task).run()
    if runtime.telemetry is not NO_TELEMETRY:
        report_ended(runtime.telemetry.push_ended, _end_report(batch_id, chunk_id, report, now, runtime.clock()))
    publish_operational_events(runtime)
    return report


def _end_report(batch_id: str, chunk_id: int, report: PushReport, started: datetime, ended: datetime) -> PushEnded:
    targets = tuple(
        TargetPushed(each.rule, each.target, each.total, each.sent, each.delivered, each.dead_lettered, each.retried)
        for each in report.targets
    )
    return PushEnded(batch_id, chunk_id, started, ended, targets)


class _Push:
    def __init__(
        self,
        runtime: Runtime,
        batch: Batch,
        chunk: Chunk,
        stop: Stop,
        only: Collection[tuple[str, str]] | None,
        of_streaming_task: Responses | None,
    ) -> None:
        self._runtime = runtime
        self._batch = batch
        self._chunk = chunk
        self._stop = stop
        self._only = only
        self._of_streaming_task = of_streaming_task
        self._cpu_reported = time.process_time()
        self._has_claim = True
        flushes = SharedFlushes()
        self._threads = Threads("push", THREADS_AT_ONCE, first=1, spare=flushes)
        self._engine = TargetRuns(runtime, batch, stop, self._threads, job_of=flushes.job)

    def run(self) -> PushReport:
        pieces = self._chunk.pieces
        if self._only is not None:
            pieces = tuple(piece for piece in pieces if (piece.rule, piece.target) in self._only)
        read = read_pieces(self._runtime.store, pieces)
        done: dict[bytes, BestOutcome] = {}
        if files := segments(self._runtime, self._batch.batch_id, [self._chunk.chunk_id]):
            known = self._of_streaming_task if all(map(is_of_streaming_task, files)) else None
            read, done = select_outstanding(read, known or responses_in(self._runtime, files))
        runs = self._engine.plan(self._chunk, read, done)
        wait_only_beside_others(self._runtime, self._batch, runs)
        try:
            self._deliver(runs)
        except BaseException as error:
            self._engine.close()
            self._engine.join(_JOIN_SECONDS)
            self._end("error", runs, error)
            raise
        return self._finish(runs)

    def _finish(self, runs: list[TargetRun]) -> PushReport:
        reports = tuple(run.report for run in runs)
        crash = next((report.crashed for report in reports if report.crashed is not None), None)
        left = sum(report.total - report.settled for report in reports)
        if self._has_claim:
            if crash is None:
                spent = self._stop.is_set() or self._only is not None or any(report.spent for report in reports)
                self._end("timeout" if spent else "completed", runs, None)
            else:
                self._end("error", runs, crash)
        self._engine.join(_JOIN_SECONDS)
        if crash is not None:
            raise crash
        return PushReport(
            claimed=True,
            delivered=sum(report.delivered for report in reports),
            dead_lettered=sum(report.dead_lettered for report in reports),
            retried=sum(report.retried for report in reports),
            left=left,
            targets=reports,
        )

    def _deliver(self, runs: list[TargetRun]) -> None:
        """Deliver until the last run has ended, or the push stops waiting for responses."""
        engine, settings = self._engine, self._runtime.settings
        recorded_at = time.monotonic()
        engine.start(runs)
        while engine.is_busy and self._has_claim and not self._is_over():
            engine.work_for(TICK_SECONDS)
            engine.poll()
            self._threads.poll()
            count, now = engine.unrecorded, time.monotonic()
            if count >= settings.segment_responses or (count and now - recorded_at >= settings.segment_interval):
                self._record()
                recorded_at = time.monotonic()
            elif not count:
                recorded_at = now
        self._record_all()
        engine.close()
        self._record_all()

    def _is_over(self) -> bool:
        """Return whether to stop waiting for responses because all requests in flight have reached their timeouts."""
        return self._stop.is_set() and self._stop.is_over(self._engine.timeout_seconds + NOTICE_SECONDS)

    def _record_all(self) -> None:
        while self._engine.unrecorded:
            self._record()

    def _record(self) -> None:
        self._has_claim = self._engine.record(self._write_segment) and self._has_claim

    def _write_segment(self, number: int, rows: pa.Table) -> bool:
        cpu, self._cpu_reported = time.process_time() - self._cpu_reported, time.process_time()
        chunk = self._chunk
        return write_segment(self._runtime, self._batch, chunk.chunk_id, chunk.claim, number, rows, round(cpu * 1e6))

    def _end(self, state: ChunkState, runs: list[TargetRun], error: BaseException | None) -> None:
        self._runtime.ledger.chunks.end(
            self._batch.batch_id,
            self._chunk.chunk_id,
            self._chunk.claim,
            ChunkEnd(
                state,
                succeeded=sum(run.report.delivered for run in runs),
                failed=sum(run.report.dead_lettered + run.report.retried for run in runs),
                error=f"{type(error).__name__}: {error}" if error is not None else "",
                tallies=[tally for run in runs if (tally := run.tally()) is not None],
            ),
        )


def wait_only_beside_others(runtime: Runtime, batch: Batch, runs: Sequence[TargetRun]) -> None:
    """Let a run of new deliveries wait only while no other target of the batch has to wait for it.

    That is the case while another target of this push is at work, or if the batch has no other target. Another push
    does not count, because it may be waiting as well, and the batch would wait for both. In any batch that is not
    normal, each run may wait for as long as its budget lasts.
    """
    if batch.kind != "normal":
        return
    targets_of = runtime.ledger.chunks.targets(batch.batch_id)

    def may_wait(run: TargetRun) -> bool:
        own = (run.report.rule, run.report.target)
        if all(targets == {own} for targets in targets_of.values()):
            return True
        return any(each.progress.is_at_work for each in reversed(runs) if each is not run)  # the last runs begin last

    for run in runs:
        run.progress.may_wait = partial(may_wait, run)


class PushStop(Stop):
    """The stop of one push.

    It is also set once `of_all`, the stop of all pushes, is set; setting it does not set `of_all`.
    """

    def __init__(self, of_all: Stop) -> None:
        super().__init__()
        self._of_all = of_all

    def is_set(self) -> bool:
        """Return whether this push must stop."""
        return super().is_set() or self._of_all.is_set()

    def is_over(self, within_seconds: float = math.inf) -> bool:
        """Return whether this push no longer waits for responses, because of its own stop or that of all pushes."""
        return super().is_over(within_seconds) or self._of_all.is_over(within_seconds)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `timeout` seconds, or until all pushes must stop; return whether this push must stop.

        A wait that has begun does not end when only this push is stopped, so it must be short.
        """
        if not self.is_set():
            self._of_all.wait(timeout)
        return self.is_set()
