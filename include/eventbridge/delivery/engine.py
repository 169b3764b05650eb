"""Starts target runs (each sends the deliveries of one target), supervises them, and collects their outcomes.

There are two callers. A push starts all runs of its chunk together; a streaming task starts the runs of an open batch
as deliveries arrive. The caller decides when the work is over and where outcomes are recorded; everything else is the
same.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import pyarrow as pa

from eventbridge.delivery.admission import must_halt, must_wind_down
from eventbridge.delivery.http_loop import HttpLoop
from eventbridge.delivery.live import LiveQueue
from eventbridge.delivery.outstanding import ReadPiece
from eventbridge.delivery.plan import ChunkRuns
from eventbridge.delivery.rows import OutcomeRow, OutcomeRows, outcome_table
from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.segments import BestOutcome
from eventbridge.delivery.threads import Job, Threads
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk
from eventbridge.model.rule_state import OperatorOverrides, TargetStatus
from eventbridge.policy.breaker import pause_of
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.targets.http.multi import HasFileno

#: The seconds between two polls of the runs.
TICK_SECONDS: Final = 0.05
#: The seconds that a run may take to stop before its requests in flight are recorded as sent.
NOTICE_SECONDS: Final = 1.0
#: The seconds between two reports of attempts to the ledger, and between two reads of the reports of other processes.
_EXCHANGE_SECONDS = 1.0
#: The seconds between two checks by `close` whether the runs have ended.
_CLOSE_POLL_SECONDS = 0.01


class TargetRuns:
    """Executes the target runs of a chunk or of an open batch, and collects their outcomes.

    HTTP targets run in `loop` while the caller is in `work_for`. Without a `loop`, each call of `start` starts a thread
    that runs a loop for them. Other targets block a thread, so they run as jobs of `threads`, each created by `job_of`.
    Only one thread at a time may use a `TargetRuns`.
    """

    def __init__(
        self,
        runtime: Runtime,
        batch: Batch,
        stop: Stop,
        threads: Threads,
        loop: HttpLoop | None = None,
        job_of: Callable[[TargetRun], Job] = lambda run: run.run,
    ) -> None:
        self._runtime, self._batch, self._stop = runtime, batch, stop
        self._threads, self._loop, self._job_of = threads, loop, job_of
        self._rows = OutcomeRows(runtime.settings.segment_responses)
        self._unrecorded: list[pa.Table] = []  # taken from the rows and not recorded yet
        self._segment_number = 0
        self._runs: dict[TargetRun, None] = {}  # started, and not yet returned by `take_ended`
        self._in_progress: dict[TargetRun, None] = {}  # executing, or ended since the last call of `_exchange`
        self._ended: deque[TargetRun] = deque()
        self._loop_threads: list[threading.Thread] = []
        self._open = 0
        self._open_lock = threading.Lock()
        self._polled_at = self._exchanged_at = time.monotonic()
        self._gone: set[tuple[str, str]] = set()  # targets that responded with 410 and are not disabled yet
        self.is_closed = False

    def plan(
        self,
        chunk: Chunk,
        read: Sequence[ReadPiece],
        done: Mapping[bytes, BestOutcome],
        live: Mapping[tuple[str, str], LiveQueue] | None = None,
    ) -> list[TargetRun]:
        """Return the runs for those deliveries in `read` that are not `done`; their budget begins now.

        For an open batch, `live` holds the queues of the targets that may have a live run.
        """
        until = self._runtime.clock() + timedelta(seconds=self._runtime.settings.push_timeout)
        return ChunkRuns(self._runtime, self._batch, chunk, read, until, self._stop, self._rows, live).plan_runs(done)

    def start(self, runs: Sequence[TargetRun]) -> None:
        """Start planned runs."""
        self._runs.update(dict.fromkeys(runs))
        with self._open_lock:
            self._open += len(runs)
        for run in runs:
            run.on_begin, run.on_end = self._note_begin, self._note_end
        self._threads.add_all([self._job_of(run) for run in runs if not run.settings.uses_transfer_slot])
        http = [run for run in runs if run.settings.uses_transfer_slot]
        if self._loop is None:
            self._loop_threads += HttpLoop(http, self._threads).start()
        else:
            for run in http:
                self._loop.add(run)

    def _note_begin(self, run: TargetRun) -> None:
        self._in_progress[run] = None

    def _note_end(self, run: TargetRun) -> None:
        self._ended.append(run)
        with self._open_lock:
            self._open -= 1
            was_last = self._open == 0
        if was_last:  # not for each run, because the caller would check thousands of runs each time
            self._rows.wake()
        if run.queue and self._loop is not None:
            self._loop.wake()  # deliveries are left for the target's next run

    @property
    def is_busy(self) -> bool:
        """Whether any run has not ended."""
        return self._open > 0

    @property
    def unrecorded(self) -> int:
        """The number of outcomes that have not been recorded yet."""
        taken: int = sum(table.num_rows for table in self._unrecorded)
        return len(self._rows) + taken

    @property
    def timeout_seconds(self) -> float:
        """The maximum number of seconds that a response to a request in flight may take."""
        return max((run.settings.timeout_seconds for run in self._not_ended()), default=0.0)

    def take_ended(self) -> Iterator[TargetRun]:
        """Yield the runs that have ended since the last call."""
        while self._ended:
            run = self._ended.popleft()
            del self._runs[run]
            yield run

    def work_for(self, seconds: float, watched: HasFileno | None = None) -> bool:
        """Let the runs work for `seconds`, or until the caller has something to do.

        Without a `loop`, the wait ends when a segment is full or the last run has ended, and the result is False. With
        a `loop`, it ends when `watched` is readable or a live run has ended with work left; the result is True only in
        the latter case.
        """
        if self._loop is None:
            self._rows.wait(seconds)
            return False
        return self._loop.run_for(seconds, watched)

    def poll(self) -> None:
        """Make sleeping runs check whether they may still wait and, if due, exchange the state of targets with the
        ledger."""
        now = time.monotonic()
        if now - self._polled_at >= TICK_SECONDS:
            self._polled_at = now
            for run in list(self._in_progress):
                run.progress.wake()
        if now - self._exchanged_at >= _EXCHANGE_SECONDS:
            self._exchange()

    def _exchange(self) -> None:
        """Report attempts to the ledger; apply the findings of other processes and operators' overrides to the runs."""
        ledger = self._runtime.ledger
        begun = list(self._in_progress)
        ended = [run for run in begun if run.has_ended]
        tallies = [tally for run in begun if (tally := run.breaker.take()) is not None]
        if tallies:
            ledger.targets.record_attempts(tallies)
        for run in ended:
            del self._in_progress[run]
        if at_work := self._not_ended():
            statuses, overrides = ledger.targets.statuses(), ledger.overrides.get_effective()
            for run in at_work:
                self._apply(run, statuses.get((run.report.rule, run.report.target)), overrides)
        self._exchanged_at = time.monotonic()

    def _apply(self, run: TargetRun, status: TargetStatus | None, overrides: OperatorOverrides) -> None:
        key = run.report.rule, run.report.target
        run.pace.set_rate(overrides.rate(*key, run.settings.rate_of_file))
        if overrides.hold_reason(*key):
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

    def record(self, write: Callable[[int, pa.Table], bool], *, everything: bool = False) -> bool:
        """Record the oldest outcomes by calling `write` with a segment number and a table; return its result.

        A segment has about as many outcomes as the `segment_responses` setting says, or all of them if `everything`. If
        `write` raises an error, the next call records the same outcomes again, together with the next ones, under the
        next number, because the failed call may have taken effect.
        """
        while self._rows:
            tables, rows = self._rows.take()
            self._unrecorded += [*tables, outcome_table(rows)]
            self._note_gone(rows)
            if not everything:
                break
        self._disable_gone()
        number, self._segment_number = self._segment_number, self._segment_number + 1
        has_claim = write(number, pa.concat_tables([outcome_table([]), *self._unrecorded]))
        self._unrecorded.clear()
        return has_claim

    def _note_gone(self, rows: Iterable[OutcomeRow]) -> None:
        self._gone.update((row.rule, row.target) for row in rows if row.reason == "target_gone")

    def _disable_gone(self) -> None:
        while self._gone:  # after an error, the next call disables the rest
            key = next(iter(self._gone))
            self._runtime.ledger.targets.set_status(*key, "disabled", "the target responded with 410")
            self._gone.discard(key)

    def wind_down(self) -> None:
        """Make the runs send nothing more and wait for the responses to requests in flight; other deliveries get no
        outcome."""
        runs = self._not_ended()
        for run in runs:
            run.wind_down()
        self._notify(runs)

    def close(self) -> None:
        """Stop the runs, and record requests in flight as sent, because the target may have accepted them.

        Runs have a short time to stop; a run that hangs in a call is abandoned.
        """
        if self.is_busy and not self.is_closed:
            self._stop_runs()
        self.is_closed = True  # set last, because until then no other run may send to these targets

    def _stop_runs(self) -> None:
        self._stop.set_at_once()
        self._notify(self._not_ended())
        until = time.monotonic() + NOTICE_SECONDS
        while self.is_busy and time.monotonic() < until:
            if self._loop is not None:
                self._loop.run_for(_CLOSE_POLL_SECONDS)
            else:
                time.sleep(_CLOSE_POLL_SECONDS)
        abandoned = self._not_ended()
        for run in abandoned:
            run.record_in_flight()
        if self._loop is not None and abandoned:
            self._loop.drop(abandoned)

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads of the runs to end; a thread that is still running afterwards does not
        affect other pushes."""
        until = time.monotonic() + seconds
        for thread in [*self._loop_threads, *self._threads.running()]:
            thread.join(timeout=max(0.0, until - time.monotonic()))

    def _not_ended(self) -> list[TargetRun]:
        return [run for run in self._runs if not run.has_ended]

    def _notify(self, runs: Sequence[TargetRun]) -> None:
        """Wake runs that are waiting for deliveries or responses."""
        for run in runs:
            if run.queue is not None:
                run.queue.notified.set()
        if self._loop is not None:
            self._loop.notify(runs)
