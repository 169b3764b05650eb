"""Delivers the events of an open batch as they arrive. The batch is closed while the next one takes events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from eventbridge.delivery.http_loop import HttpLoop
from eventbridge.delivery.segments import write_open_segment
from eventbridge.errors import EventBridgeError, InfrastructureError
from eventbridge.model.batch import Batch
from eventbridge.model.partition import FreshEvent, Partition
from eventbridge.pipeline.ingest.buffer import Landing
from eventbridge.pipeline.ingest.taken_messages import TakenMessages
from eventbridge.policy.chunking import PoolSlots
from eventbridge.policy.streaming import batch_is_over, segment_is_due
from eventbridge.runtime.runtime import Runtime
from eventbridge.sources.protocol import LogSource
from eventbridge.streaming.bus import BusPolls, StreamingBus
from eventbridge.streaming.lease import LeaseKeeper
from eventbridge.streaming.routing import StreamingRouting, refuse_unfit
from eventbridge.streaming.target_queues import PoolTurns, TargetQueues

log = logging.getLogger(__name__)

#: A batch is closed when it has this many events. A batch that has none is dropped after this many seconds, so that the
#: rules are read again.
_BATCH_EVENTS, _IDLE_BATCH_SECONDS = 20_000, 60.0
#: A batch is also closed when its messages have this total size. While the previous batch is being closed, both limits
#: are multiplied by _GROWTH.
_BATCH_BYTES, _GROWTH = 16 * 2**20, 5
#: The time for which the end of a batch keeps sending events that were read: _SENDING_SECONDS or, for a full batch, up
#: to _FULL_SENDING_SECONDS, as long as at least _QUICK_RATE responses arrive per second.
_SENDING_SECONDS, _FULL_SENDING_SECONDS, _QUICK_RATE = 1.0, 10.0, 1_000
#: The time between two checks for responses at the end of a batch.
_RESPONSES_SECONDS = 0.003
#: The time for which recording the last responses is retried, and the time between two attempts.
_LAST_SEGMENT_SECONDS, _AGAIN_SECONDS = 10.0, 0.2
#: The maximum part of the time that it took to write a segment that counts towards the age of the next segment. Without
#: a limit, segments would be written to a slow disk all the time.
_WRITTEN_SECONDS = 0.2
#: The maximum number of events to take from one partition at a time.
_AT_ONCE = 1_000
#: The number of events or responses per second from which on the committer reconciles a batch. A smaller batch is
#: reconciled in a thread, which blocks the loop only briefly. Responses count too, because the time that a
#: reconciliation takes depends on them, and an event with ten targets has ten responses.
_LARGE_RATE = 150


@dataclass
class StreamingBatch:
    """One open batch, from its first event to its last segment.

    `former` is the previous open batch, as long as it is being closed. `on_large` is called when this batch becomes
    large.
    """

    runtime: Runtime
    batch: Batch
    lease: LeaseKeeper
    bus: StreamingBus
    http: HttpLoop
    pools: Mapping[str, PoolSlots] | None = None  # the current pools, None if unknown
    former: BatchClose | None = None
    on_large: Callable[[], None] | None = None
    events: int = 0
    busy_seconds: float = 0.0  # time spent on events
    taken: TakenMessages = field(default_factory=TakenMessages)
    _bytes: int = 0
    _responded: int = 0
    _has_gap: bool = False  # messages are missing, which only a batch whose end is known in advance can skip
    _cpu: float = 0.0  # CPU seconds since the last segment with events or responses

    def run(self) -> bool:
        """Deliver events until the batch is over.

        Returns False if another process now has the batch. The caller must not end it then.
        """
        rules = self.runtime.rules_of(self.batch)
        refuse_unfit(rules, has_spark=not self.lease.bounds.makes_retries)
        self._seconds = rules.mode_of(self.batch.runner).streaming.batch_interval
        turns = PoolTurns(rules, self.pools, self.runtime.ledger.overrides.get_effective())
        routing = self._routing = StreamingRouting(self.runtime, self.batch, rules, turns.on_hold)
        self._ends = {span.partition: span.end for span in self.runtime.ledger.batches.ranges(self.batch.batch_id)}
        bus = rules.buses[self.batch.bus]
        with self.bus.reading(bus, self._ends) as source:
            landing = Landing(self.runtime, self.batch, bus, source, taken=self.taken)
            before = self.former.targets if self.former is not None else None
            self.targets = TargetQueues(self.runtime, self.batch, rules, self.http, before, turns)
            kept = False
            try:
                streamed = self._stream(landing, source, routing)
                self.targets.finish()
                kept = streamed and self._deliver_until_former_is_closed()
            except Exception:
                self.abandon()
                raise
            finally:
                if not kept:
                    self.targets.close()
        return kept

    def record(self) -> bool:
        """Record the responses, and how far the bus was read. Return False if another process now has the batch."""
        begun = time.monotonic()
        kept = self.targets.engine.record(self._write_segment, everything=True)
        self._begun_at = max(begun, time.monotonic() - _WRITTEN_SECONDS)
        if not kept:
            log.warning("runner %s: another process has taken over batch %s", self.batch.runner, self.batch.batch_id)
        return kept

    def _write_segment(self, number: int, rows: pa.Table) -> bool:
        kept = write_open_segment(self.runtime, self.batch, number, self._ends, rows, round(self._cpu * 1e6))
        self._cpu = 0.0 if rows.num_rows else self._cpu
        self._responded += rows.num_rows
        return kept

    def end(self) -> bool:
        """Wait for the last responses, and move the batch to `planned`. Any thread may call this after `run`.

        Returns False if there is no batch to close, because it had no events or because another process now has it.
        """
        try:
            if not self.events and self.runtime.ledger.streaming.drop(self.batch.batch_id):
                return False
            return self._end() and self.runtime.ledger.batches.move(self.batch.batch_id, "open", "planned")
        finally:
            self.targets.close()

    def abandon(self) -> None:
        """Stop, and record the responses, so that the process that finishes the batch sends only what is left."""
        self.targets.finish()
        try:
            self._end()
        except EventBridgeError as error:
            log.warning(
                "batch %s: its last responses (%d) cannot be recorded: %s",
                self.batch.batch_id,
                self.targets.engine.unrecorded,
                error,
            )
        finally:
            self.targets.close()

    @property
    def ends(self) -> Mapping[Partition, int]:
        """The offsets up to which the partitions were read."""
        return self._ends

    @property
    def is_large(self) -> bool:
        """Whether this batch is so large that a separate process should reconcile it."""
        return max(self.events, self._responded) >= _LARGE_RATE * self._seconds

    @property
    def has_left(self) -> bool:
        """Whether the batch has deliveries that are sent only at its close."""
        return self._routing.has_left

    def _deliver_until_former_is_closed(self) -> bool:
        """Deliver until the previous batch is closed. Return False if another process now has this batch.

        If the close fails, this raises the error of the close.
        """
        while self._must_grow:
            if not self._deliver_briefly():
                return False
        self._release_previous()
        return True

    def _release_previous(self) -> None:
        former, self.former = self.former, None
        if former is not None:
            former.result()

    def _stream(self, landing: Landing, source: LogSource, routing: StreamingRouting) -> bool:
        began = self._begun_at = arrived = time.monotonic()
        first: float | None = None
        polls = BusPolls(source, self.targets)
        while not (self.lease.is_over or self._full or self._has_gap):
            now, mark = time.monotonic(), time.thread_time()
            if self._is_over(now, began, first):
                break
            before, unrecorded = self.events, self.targets.engine.unrecorded
            polls.begin()
            fresh, left = self._take_fresh(landing, source)
            if fresh:
                self.targets.offer(routing.pieces(fresh))
            if self.events > before:
                first, arrived = first or now, now
                self.lease.note_events()
            self.targets.poll()
            if not self._segment_if_due():
                return False
            if not self._must_grow:
                self._release_previous()
            if self.events > before:
                self.busy_seconds += time.monotonic() - now
            if self.on_large is not None and self.is_large:
                on_large, self.on_large = self.on_large, None
                on_large()
            polls.work_until_next(self.events - before, 0.0 if self.targets.is_busy else now - arrived, left=left)
            if self.events > before or self.targets.engine.unrecorded != unrecorded:
                self._cpu += time.thread_time() - mark
        return True

    def _take_fresh(self, landing: Landing, source: LogSource) -> tuple[list[FreshEvent], bool]:
        """Return the events that have arrived since the last poll, and whether some are left for the next poll."""
        fresh: list[FreshEvent] = []
        left = False
        for partition, end in source.ends().items():
            if not (self.lease.is_over or self._full) and partition in self._ends and end > self._ends[partition]:
                fresh += self._take(landing, partition, min(end, self._ends[partition] + _AT_ONCE))
                left = left or self._ends[partition] < end
        return fresh, left

    def _is_over(self, now: float, began: float, first: float | None) -> bool:
        if self.lease.has_standby and not self._must_grow:
            return True  # the standby continues from here, because at most one batch may follow another
        if first is None:
            return now - began >= _IDLE_BATCH_SECONDS
        if self._must_grow:
            return False
        return batch_is_over(now - first, self.events, self._seconds, waits=self._routing.has_left)

    @property
    def _must_grow(self) -> bool:
        """Whether the previous batch is still being closed.

        If this batch ended now, no events would be read until the previous batch is closed.
        """
        return self.former is not None and not self.former.is_done

    @property
    def _full(self) -> bool:
        if self.events < _BATCH_EVENTS and self._bytes < _BATCH_BYTES:
            return False
        factor = _GROWTH if self._must_grow else 1
        return self.events >= factor * _BATCH_EVENTS or self._bytes >= factor * _BATCH_BYTES

    def _end(self) -> bool:
        """Wait for responses, then give up on requests without one, and record the last segment."""
        try:
            if not self._await_responses():
                return False
        except InfrastructureError as error:  # the responses that have arrived are recorded anyway
            log.warning("runner %s: a batch ends without its last responses: %s", self.batch.runner, error)
        self.targets.close()
        return self._last_segment()

    def _await_responses(self) -> bool:
        """Send for a moment, then wait for responses until their timeout. If the task must stop, send nothing more.

        Returns False if another process now has the batch.
        """
        began = time.monotonic()
        responded, measured_at = self._responded, began
        sends_until = began + _SENDING_SECONDS
        while self._must_wait(sends_until):
            if not self._deliver_briefly():
                return False
            now = time.monotonic()
            if self._full and now - measured_at >= _SENDING_SECONDS / 2:
                rate = (self._responded + self.targets.engine.unrecorded - responded) / (now - measured_at)
                responded, measured_at = self._responded + self.targets.engine.unrecorded, now
                # A full batch means a burst, most of which would otherwise be left to retry batches.
                if rate >= _QUICK_RATE:
                    sends_until = min(now + _SENDING_SECONDS, began + _FULL_SENDING_SECONDS)
        self.targets.wind_down()
        responses_until = time.monotonic() + self.targets.engine.timeout_seconds
        while self._must_wait(responses_until):
            if not self._deliver_briefly():
                return False
        return True

    def _must_wait(self, end: float) -> bool:
        must_stop = self.lease.lost.is_set() or self.lease.stop.is_over()
        return self.targets.is_busy and time.monotonic() < end and not must_stop

    def _deliver_briefly(self) -> bool:
        """Deliver for a moment. Return False if another process now has the batch."""
        mark, unrecorded = time.thread_time(), self.targets.engine.unrecorded
        if self.lease.stop.is_set():
            self.targets.wind_down()
        self.targets.poll()
        if not self._segment_if_due():
            return False
        self.targets.engine.work_for(_RESPONSES_SECONDS)
        if self.targets.engine.unrecorded != unrecorded:
            self._cpu += time.thread_time() - mark
        return True

    def _segment_if_due(self) -> bool:
        settings, age = self.runtime.settings, time.monotonic() - self._begun_at
        due = segment_is_due(age, self.targets.engine.unrecorded, settings.segment_interval, settings.segment_responses)
        return self.record() if due else True

    def _last_segment(self) -> bool:
        """Record the remaining responses, and retry this for some seconds.

        Deliveries whose responses are not recorded are sent again.
        """
        end = time.monotonic() + _LAST_SEGMENT_SECONDS
        while True:
            try:
                return self.record()
            except InfrastructureError as error:
                if time.monotonic() >= end or self.lease.lost.wait(_AGAIN_SECONDS):
                    raise
                log.warning("runner %s: cannot record responses, retrying: %s", self.batch.runner, error)

    def _take(self, landing: Landing, partition: Partition, limit: int) -> list[FreshEvent]:
        if (found := landing.take(partition, self._ends[partition], limit)) is None:
            self._has_gap = True
            return []
        self._ends[partition] = found.end
        self.events += found.read
        self._bytes += found.size
        return found.events


@dataclass
class BatchClose:
    """The close of a batch, which runs in a separate thread, and the queues of the batch's targets."""

    targets: TargetQueues | None  # None if another process closes the batch
    close: Callable[[], None]
    _end: Future[None] = field(default_factory=Future)

    def __post_init__(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="close", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether the close has ended, with or without an error."""
        return self._end.done()

    def result(self) -> None:
        """Wait until the close has ended, and raise its error, if any."""
        self._end.result()

    def wait(self) -> None:
        """Wait until the close has ended, with or without an error."""
        self._end.exception()

    def _run(self) -> None:
        try:
            self.close()
        except BaseException as error:
            self._end.set_exception(error)
        else:
            self._end.set_result(None)
