"""A window of the express lane: one open batch, whose events are delivered as they come."""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
from msgspec import structs

from eventbridge.errors import EventBridgeError
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.queue import Queue
from eventbridge.model.routed import RoutedSlice
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.routing.job import Slice
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.ingest.buffer import Landing
from eventbridge.stages.notify.publish import publish_operational_events
from eventbridge.stages.operate.express_fit import refuse_unfit
from eventbridge.stages.operate.shift_lease import Lease
from eventbridge.stages.push.chunk_rows import read_pieces
from eventbridge.stages.push.http_loop import HttpLoop
from eventbridge.stages.push.plan import ChunkRuns
from eventbridge.stages.push.rows import OutcomeRows, outcome_table
from eventbridge.stages.push.run import TargetRun
from eventbridge.stages.push.threads import Threads
from eventbridge.stages.route.stage import job_of
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.segments.segments import write_open_segment
from eventbridge.store.parquet import TableWriter
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import freeze_rules
from eventbridge.store.schemas import ROW_GROUP_ROWS

log = logging.getLogger(__name__)

#: A window is closed with so many events; one without events after a minute.
_WINDOW_EVENTS, _IDLE_WINDOW_SECONDS = 20_000, 60.0
#: How long the loop waits before it looks at the bus again.
_LOOK_SECONDS = 0.003
#: Events of one queue that are taken at a time.
_AT_ONCE = 1_000
#: Targets of those that hold a thread that are delivered to at a time.
_THREADS_AT_ONCE = 64


@dataclass
class Window:
    """One open batch, from its first event to its last segment."""

    work: Runtime
    batch: Batch
    scratch: Store
    lease: Lease
    held: frozenset[str] = frozenset()  # pools whose rules' deliveries wait
    answers: list[pa.Table] = field(default_factory=list)
    number: int = 0
    events: int = 0
    busy_seconds: float = 0.0  # taken for its events

    def run(self) -> bool:
        """Deliver what comes until the window is over, and move it to `planned`; False: it is lost."""
        rules = self.work.rules_of(self.batch)
        refuse_unfit(rules)
        freeze_rules(self.scratch, rules)
        self._seconds = rules.mode_of(self.batch.runner).express.window
        self._held = {name for name, rule in rules.rules.items() if rule.pool_name in self.held} if self.held else set()
        self._ends = {span.queue: span.end for span in self.work.ledger.ranges(self.batch.batch_id)}
        bus = rules.buses[self.batch.bus]
        with closing(self.work.open_source(bus)) as source:
            landing = Landing(self.work, self.batch, bus, source)
            if not self._stream(landing, source):
                return False
        return self.work.ledger.move_batch(self.batch.batch_id, "open", "planned")

    def _stream(self, landing: Landing, source: LogSource) -> bool:
        began = written = time.monotonic()
        first: float | None = None
        while not self.lease.over and self.events < _WINDOW_EVENTS:
            now = time.monotonic()
            if now - (first or began) >= (self._seconds if first else _IDLE_WINDOW_SECONDS):
                break
            before = self.events
            for queue, end in source.ends().items():
                if not self.lease.over and queue in self._ends and end > self._ends[queue]:
                    self._take(landing, queue, min(end, self._ends[queue] + _AT_ONCE))
            if self.events > before:
                first = first or now
                self.lease.came()
                self.busy_seconds += time.monotonic() - now
            if self._is_due(time.monotonic() - written):
                if not self._segment():
                    return False
                written = time.monotonic()
            if self.events == before:
                self.lease.stop.wait(_LOOK_SECONDS)
        return self._segment()

    def _is_due(self, age: float) -> bool:
        settings = self.work.settings
        rows = sum(table.num_rows for table in self.answers)
        return bool(rows) and (rows >= settings.segment_answers or age >= settings.segment_seconds)

    def _segment(self) -> bool:
        rows = pa.concat_tables(self.answers) if self.answers else outcome_table([])
        self.answers = []
        kept = write_open_segment(self.work, self.batch, self.number, self._ends, rows)
        self.number += 1
        if not kept:
            log.warning("runner %s: batch %s was taken over", self.batch.runner, self.batch.batch_id)
        return kept

    def _take(self, landing: Landing, queue: Queue, limit: int) -> None:
        rows, self._ends[queue] = landing.take(queue, self._ends[queue], limit)
        self.events += rows.num_rows
        if not rows.num_rows:
            return
        path = f"buffer/{uuid.uuid4().hex}.parquet"
        writer = TableWriter(self.scratch, path, ROW_GROUP_ROWS)
        writer.write(rows)
        writer.close()
        pieces: list[Piece] = []
        try:
            pieces = self._pieces(path, rows.num_rows)
            self._deliver(pieces)
        finally:  # it lies in memory
            self.scratch.delete_all([path, *{piece.file for piece in pieces}])

    def _pieces(self, path: str, rows: int) -> list[Piece]:
        """Return what matched and may be sent now; what cannot be routed is left to the close, which splits it."""
        job = structs.replace(job_of(self.work, self.batch), store_uri=self.scratch.uri)
        try:
            (result,) = InProcessRouter(self.scratch).route_slices(job, [Slice("express", path, 0, rows)])
        except EventBridgeError as error:
            log.warning("runner %s: events are left to the close of their window: %s", self.batch.runner, error)
            return []
        assert isinstance(result.detail, RoutedSlice)
        if result.path is None:
            return []
        file = result.path
        return [
            Piece(file, piece.rows, piece.count, piece.size, piece.rule, piece.target)
            for piece in result.detail.pieces
            if piece.rule not in self._held
        ]

    def _deliver(self, pieces: list[Piece]) -> None:
        """Send what pieces name, once; a delivery that is to be tried again is left to the close, with its answer."""
        if not pieces:
            return
        work, settings = self.work, self.work.settings
        counts = sum(piece.count for piece in pieces), sum(piece.size for piece in pieces)
        chunk = Chunk(self.batch.batch_id, 0, "", 0, tuple(pieces), *counts)
        until = work.clock() + timedelta(seconds=settings.push_budget_seconds)
        out = OutcomeRows(settings.segment_answers)
        read = read_pieces(self.scratch, pieces)
        runs = ChunkRuns(work, self.batch, chunk, read, until, self.lease.lost, out).of({})
        for run in runs:
            run.presence.may_wait = bool  # a retry is the close's, or the slow lane's
        out.expect(len(runs))
        threads = Threads("express", _THREADS_AT_ONCE)
        for run in runs:
            if not run.settings.seated:
                threads.add(run.run)
        HttpLoop([run for run in runs if run.settings.seated], threads).start()
        while not all(run.ended for run in runs):
            out.wait(0.05)
        while out:
            tables, rows = out.take()
            for row in rows:
                if row.reason == "TargetGone":
                    work.ledger.set_target_status(row.rule, row.target, "disabled", "the target answered 410")
            self.answers += [*tables, outcome_table(rows)]
        self._tell(runs)

    def _tell(self, runs: list[TargetRun]) -> None:
        """Tell the breakers of the attempts, and the log of a run that crashed: what it had is left to the close."""
        for run in runs:
            if run.report.crashed is not None:
                log.error("runner %s: a target's run ended: %s", self.batch.runner, run.report.crashed)
        tallies = [tally for run in runs if (tally := run.tally()) is not None]
        if tallies:
            self.work.ledger.note_attempts(tallies)
        if any(run.breaker.tripped or run.report.gone for run in runs):
            publish_operational_events(self.work)
