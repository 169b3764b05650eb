"""Push: delivers one chunk to all its targets in parallel, and makes every response durable before it counts.

A mapped Airflow task calls it once for each chunk; `eventbridge deliver` calls it in sequence.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa

from eventbridge.delivery.findings import TargetFindings
from eventbridge.delivery.garbage_collection import rare_garbage_collection
from eventbridge.delivery.http_loop import HttpLoop
from eventbridge.delivery.outstanding import TargetReport, read_pieces, without_final_outcome
from eventbridge.delivery.plan import ChunkRuns
from eventbridge.delivery.rows import OutcomeRow, OutcomeRows, outcome_table
from eventbridge.delivery.run import NOTICE_SECONDS, TargetRun
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

#: How often the collector checks the runs when no response comes.
_TICK_SECONDS = 0.05

#: How long a finished push waits for its targets to close their connections: all do, except those of an unresolved
#: host.
_JOIN_SECONDS = 0.5


@dataclass(frozen=True)
class PushReport:
    """The result of one push of one chunk; all zero if there was nothing to do (stale, past the deadline, settled)."""

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
    """Deliver the rest of a chunk, within the push budget, or until `stop` is set.

    The budget begins once the deliveries have been read. If `only` is given, deliveries for other targets than these
    (rule, target) get no outcome. `of_streaming_task` are the responses in the segments of a streaming task, if they
    have been read already.

    Does nothing unless the batch is routed and before its deadline. While another push works on the chunk, it waits. A
    push that lost its claim because its process stood still stops and records what it had in flight.

    Raises the first error that concerns no single delivery (a target that cannot be opened, the store, the ledger),
    after the other targets are served.
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
        report_ended(runtime.telemetry.push_ended, _ended(batch_id, chunk_id, report, now, runtime.clock()))
    publish_operational_events(runtime)
    return report


def _ended(batch_id: str, chunk_id: int, report: PushReport, started: datetime, ended: datetime) -> PushEnded:
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
        self._rows = OutcomeRows(runtime.settings.segment_responses)
        self._segment_number = 0
        self._cpu_reported = time.process_time()
        self._stale = False
        self._last = LastResponses(stop)
        self._threads = Threads("push", 0)
        self._loop: list[threading.Thread] = []

    def run(self) -> PushReport:
        pieces = self._chunk.pieces
        if self._only is not None:
            pieces = tuple(piece for piece in pieces if (piece.rule, piece.target) in self._only)
        read = read_pieces(self._runtime.store, pieces)
        done: dict[bytes, BestOutcome] = {}
        if files := segments(self._runtime, self._batch.batch_id, [self._chunk.chunk_id]):
            known = self._of_streaming_task if all(map(is_of_streaming_task, files)) else None
            read, done = without_final_outcome(read, known or responses_in(self._runtime, files))
        until = self._runtime.clock() + timedelta(seconds=self._runtime.settings.push_timeout)
        runs = ChunkRuns(self._runtime, self._batch, self._chunk, read, until, self._stop, self._rows).of(done)
        self._neighbours = Neighbours(self._runtime, self._batch, runs)
        self._unreported = RunsInProgress(self._neighbours.begun)
        self._findings = TargetFindings(self._runtime, self._batch)
        try:
            self._collect(runs)
        except BaseException as error:
            for run in runs:
                run.abandon()
            self._join_threads(NOTICE_SECONDS)
            self._end("error", runs, error)
            raise
        return self._finish(runs)

    def _finish(self, runs: list[TargetRun]) -> PushReport:
        reports = tuple(run.report for run in runs)
        crash = next((report.crashed for report in reports if report.crashed is not None), None)
        left = sum(report.total - report.settled for report in reports)
        if not self._stale:
            if crash is None:
                spent = self._stop.is_set() or self._only is not None or any(report.spent for report in reports)
                self._end("timeout" if spent else "completed", runs, None)
            else:
                self._end("error", runs, crash)
        self._join_threads(_JOIN_SECONDS)
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

    def _collect(self, runs: list[TargetRun]) -> None:
        outstanding = list(runs)
        settings = self._runtime.settings
        written_at = woken_at = time.monotonic()
        self._rows.expect(len(runs))
        self._start(runs)
        while True:
            while outstanding and outstanding[-1].has_ended:
                outstanding.pop()
            if time.monotonic() - woken_at >= _TICK_SECONDS:
                self._neighbours.wake()
                woken_at = time.monotonic()
            finished = self._last.are_over(outstanding, is_stale=self._stale) or not outstanding
            if not finished:
                self._rows.wait(_TICK_SECONDS)
            count, age = len(self._rows), time.monotonic() - written_at
            if count and (finished or count >= settings.segment_responses or age >= settings.segment_interval):
                self._write(*self._rows.take())
                written_at = time.monotonic()
            elif not count:
                written_at = time.monotonic()
            self._threads.poll()
            if self._findings.is_due and not (finished or self._stale):
                self._findings.exchange(self._unreported.poll(), runs)
            if finished and not self._rows:
                return

    def _start(self, runs: Sequence[TargetRun]) -> None:
        flushes = SharedFlushes()
        threads = self._threads = Threads("push", THREADS_AT_ONCE, first=1, spare=flushes)
        threads.add_all(flushes.job(run) for run in runs if not run.settings.uses_transfer_slot)
        self._loop = HttpLoop([run for run in runs if run.settings.uses_transfer_slot], threads).start()

    def _join_threads(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads of this push; one that still runs then affects no other push."""
        until = time.monotonic() + seconds
        for thread in [*self._loop, *self._threads.running()]:
            thread.join(timeout=max(0.0, until - time.monotonic()))

    def _write(self, tables: list[pa.Table], rows: list[OutcomeRow]) -> None:
        self._findings.note_gone(rows)
        self._findings.disable_gone()
        table = pa.concat_tables([*tables, outcome_table(rows)])
        chunk = self._chunk
        cpu, self._cpu_reported = time.process_time() - self._cpu_reported, time.process_time()
        recorded = write_segment(
            self._runtime, self._batch, chunk.chunk_id, chunk.claim, self._segment_number, table, round(cpu * 1e6)
        )
        self._segment_number += 1
        if not recorded:
            self._stale = True

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


class Neighbours:
    """The other targets of a push of new deliveries: a run may wait only where no target waits for it.

    In the slow lane each run may wait for as long as its budget lasts.
    """

    def __init__(self, runtime: Runtime, batch: Batch, runs: Sequence[TargetRun]) -> None:
        self.begun = BegunRuns(runs)
        self._in_progress = RunsInProgress(self.begun)
        self._runs = runs
        self._targets_of = runtime.ledger.chunks.targets(batch.batch_id) if batch.kind == "normal" else {}
        for run in runs if batch.kind == "normal" else ():
            run.progress.may_wait = partial(self._may_wait, run)

    def wake(self) -> None:
        """Wake the runs that wait, to check whether they still may: another run has ended, or the push must stop."""
        for run in self._in_progress.poll():
            run.progress.wake()

    def _may_wait(self, run: TargetRun) -> bool:
        """Return whether another target of this push is at work, or the batch has no other target.

        Another push does not count: it may be waiting as well, and the batch would wait for both.
        """
        own = (run.report.rule, run.report.target)
        if all(targets == {own} for targets in self._targets_of.values()):
            return True
        return any(each.progress.is_at_work for each in reversed(self._runs) if each is not run)  # the last begin last


class BegunRuns:
    """The runs of a push in the order in which they begin; each thread adds its own."""

    def __init__(self, runs: Sequence[TargetRun]) -> None:
        self._begun: list[TargetRun] = []
        for run in runs:
            run.progress.on_begin = partial(self._begun.append, run)

    def since(self, number: int) -> list[TargetRun]:
        """Return the runs that began after the first `number`."""
        return self._begun[number:]


class RunsInProgress:
    """The runs that have begun and not ended, for one caller that polls them."""

    def __init__(self, begun: BegunRuns) -> None:
        self._begun = begun
        self._seen = 0
        self._left: list[TargetRun] = []

    def poll(self) -> list[TargetRun]:
        """Return the runs in progress since the last poll, including those that have ended since."""
        fresh = self._begun.since(self._seen)
        self._seen += len(fresh)
        found = [*self._left, *fresh]
        self._left = [run for run in found if run.progress.ended_at is None]
        return found


class LastResponses:
    """Waits for the last responses of a push: until the time-outs of what is in flight, or until its stop is over.

    After that, requests in flight are recorded as sent. A thread that hangs in a call is abandoned.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._abandoned_at: float | None = None
        self._are_over = False

    def are_over(self, outstanding: Sequence[TargetRun], *, is_stale: bool) -> bool:
        """Return whether the push stops waiting, although runs are `outstanding`; call it repeatedly.

        `is_stale`: the push can record nothing more, so it waits for no response.
        """
        if self._abandoned_at is None:
            if not (is_stale or self._timed_out(outstanding)):
                return False
            self._abandoned_at = time.monotonic()
            for run in outstanding:
                run.abandon()
        if not self._are_over and time.monotonic() - self._abandoned_at > NOTICE_SECONDS:
            self._are_over = True
            for run in outstanding:
                run.record_in_flight()
        return self._are_over

    def _timed_out(self, outstanding: Sequence[TargetRun]) -> bool:
        if not self._stop.is_set():
            return False
        timeout = max((run.settings.timeout_seconds for run in outstanding if not run.has_ended), default=0.0)
        return self._stop.is_over(timeout + NOTICE_SECONDS)


class PushStop(Stop):
    """A stop that is also set once another one is; setting this one does not set the other."""

    def __init__(self, of_all: Stop) -> None:
        super().__init__()
        self._of_all = of_all

    def is_set(self) -> bool:
        """Return whether this push must stop."""
        return super().is_set() or self._of_all.is_set()

    def is_over(self, within_seconds: float = math.inf) -> bool:
        """Return whether this push no longer waits for responses, by its own stop or that of all pushes."""
        return super().is_over(within_seconds) or self._of_all.is_over(within_seconds)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `timeout` seconds, or until all pushes must stop; return whether this push must stop.

        A wait that has begun does not end when only this push is stopped, so it must be short.
        """
        if not self.is_set():
            self._of_all.wait(timeout)
        return self.is_set()
