"""Stage push: delivers one chunk to all its targets in parallel, and makes every response durable before it counts.

A mapped Airflow task calls it once for each chunk; `eventbridge deliver` calls it in sequence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from eventbridge.delivery.admission import must_halt, must_wind_down
from eventbridge.delivery.chunk_rows import read_pieces, without_final_outcome
from eventbridge.delivery.garbage_collection import rare_garbage_collection
from eventbridge.delivery.http_loop import HttpLoop
from eventbridge.delivery.last_responses import NOTICE_SECONDS, LastResponses
from eventbridge.delivery.neighbours import Neighbours
from eventbridge.delivery.outstanding import TargetReport
from eventbridge.delivery.plan import ChunkRuns
from eventbridge.delivery.push_stop import PushStop
from eventbridge.delivery.responses import Responses
from eventbridge.delivery.rows import OutcomeRow, OutcomeRows, outcome_table
from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.runs_under_way import RunsUnderWay
from eventbridge.delivery.segments import BestOutcome, is_of_streaming_task, responses_in, segments, write_segment
from eventbridge.delivery.shared_flush import SharedFlushes
from eventbridge.delivery.threads import Threads
from eventbridge.ledger.chunks import ChunkEnd
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, ChunkState
from eventbridge.model.rule_state import OperatorOverrides, TargetStatus
from eventbridge.policy.breaker import pause_of
from eventbridge.runtime.claims import claim, keeping
from eventbridge.runtime.instrumented import instrumented, report_ended
from eventbridge.runtime.operational_events import publish_operational_events
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.telemetry.protocol import NO_TELEMETRY, PushEnded, TargetPushed

#: Maximum targets of one chunk that block a thread and are delivered to at a time; the others wait.
_THREADS_AT_ONCE = 64
#: How often the collector checks the runs when no response comes.
_TICK_SECONDS = 0.05

#: How long a finished push waits for its targets to close their connections: all do, except those of an unresolved
#: host.
_JOIN_SECONDS = 0.5

#: How often attempts are reported to the ledger, and findings of other pushes are read.
_REPORT_SECONDS = 1.0


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
    batch = runtime.ledger.batch(batch_id)
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
        self._unreported = RunsUnderWay(self._neighbours.begun)
        self._overrides = self._runtime.ledger.overrides()
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
        written_at = reported_at = woken_at = time.monotonic()
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
            if time.monotonic() - reported_at >= _REPORT_SECONDS and not finished:
                self._report(runs)
                reported_at = time.monotonic()
            if finished and not self._rows:
                return

    def _start(self, runs: Sequence[TargetRun]) -> None:
        flushes = SharedFlushes()
        threads = self._threads = Threads("push", _THREADS_AT_ONCE, first=1, spare=flushes)
        threads.add_all(flushes.job(run) for run in runs if not run.settings.uses_transfer_slot)
        self._loop = HttpLoop([run for run in runs if run.settings.uses_transfer_slot], threads).start()

    def _join_threads(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads of this push; one that still runs then affects no other push."""
        until = time.monotonic() + seconds
        for thread in [*self._loop, *self._threads.running()]:
            thread.join(timeout=max(0.0, until - time.monotonic()))

    def _write(self, tables: list[pa.Table], rows: list[OutcomeRow]) -> None:
        for row in rows:
            if row.reason == "target_gone":
                self._runtime.ledger.set_target_status(
                    row.rule, row.target, "disabled", "the target responded with 410"
                )
        table = pa.concat_tables([*tables, outcome_table(rows)])
        chunk = self._chunk
        cpu, self._cpu_reported = time.process_time() - self._cpu_reported, time.process_time()
        recorded = write_segment(
            self._runtime, self._batch, chunk.chunk_id, chunk.claim, self._segment_number, table, round(cpu * 1e6)
        )
        self._segment_number += 1
        if not recorded:
            self._stale = True

    def _report(self, runs: Iterable[TargetRun]) -> None:
        """Report new attempts to the ledger, and end the runs whose target must get nothing now."""
        if self._stale:
            return
        tallies = [tally for run in self._unreported.poll() if (tally := run.breaker.take()) is not None]
        if tallies:
            self._runtime.ledger.note_attempts(tallies)
        statuses, overrides = self._runtime.ledger.target_statuses(), self._runtime.ledger.overrides()
        if statuses or overrides or self._overrides:
            for run in runs:
                if not run.has_ended:
                    self._apply_overrides(run, statuses.get((run.report.rule, run.report.target)), overrides)
        self._overrides = overrides

    def _apply_overrides(self, run: TargetRun, status: TargetStatus | None, overrides: OperatorOverrides) -> None:
        """Apply to a run what other pushes found and operators set for its target."""
        if overrides or self._overrides:
            run.pace.set_rate(overrides.rate(run.report.rule, run.report.target, run.settings.rate_of_file))
            if overrides.hold_reason(run.report.rule, run.report.target):
                run.halt()
        if status is None:
            return
        now = self._runtime.clock()
        if must_halt(status, follows_others=run.follows_others, now=now):
            run.halt()
        elif must_wind_down(status, self._batch, now):
            run.wind_down()
        if (pause := pause_of(status, now)) is not None:
            run.pause.ask(pause)

    def _end(self, state: ChunkState, runs: list[TargetRun], error: BaseException | None) -> None:
        self._runtime.ledger.end_chunk(
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
