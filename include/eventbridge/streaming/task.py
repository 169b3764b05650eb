"""Runs streaming mode in this process: delivers events as they arrive, in batches that the stages reconcile.

A batch is open while it takes events, which stay in memory. They are checked, matched and transformed by the same code
as in the stages, and sent by the same code as in a push. Segments record the responses, and how far the bus was read.
At its end, the open batch is moved to `planned`. Then the ordinary stages finish it, and skip the deliveries whose
outcomes are in the segments. The same happens after a crash.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from eventbridge.delivery.garbage_collection import no_garbage_collection
from eventbridge.errors import EventBridgeError, InfrastructureError, NotFoundError
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Partition
from eventbridge.pipeline.commit_to_bus import repeat_bus_commits
from eventbridge.pipeline.deliver import anything_waits_for_retry, deliver_deferred_matches, deliver_retries
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.ingest.open_batch import end_open, open_following
from eventbridge.pipeline.ingest.taken_messages import TakenMessages
from eventbridge.policy.chunking import PoolSlots
from eventbridge.routing.task import InProcessRouter
from eventbridge.routing.warm_up import compile_ahead
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.streaming.bus import StreamingBus
from eventbridge.streaming.committer import STOPPED, Committer, reconcile
from eventbridge.streaming.handover import make_ready, wait_until_closed
from eventbridge.streaming.lease import UNBOUNDED, Bounds, Handoff, LeaseKeeper, is_delivered_in_stages, waiting_events
from eventbridge.streaming.open_batch import BatchClose, StreamingBatch
from eventbridge.streaming.routing import refuse_unfit, targets_sent_at_close
from eventbridge.streaming.target_queues import Key, http_loop

log = logging.getLogger(__name__)

#: The time between two checks for pending deliveries, and before a failed batch is continued.
_RETRY_SECONDS = 1.0
#: The time for which the state of the pools is used before it is read again.
_POOLS_SECONDS = 5.0
#: The throughput in events per second that is assumed until a higher one is measured.
_EVENTS_A_SECOND = 2_000.0
#: The switch interval of the interpreter's threads, in seconds. With the default of 5 ms, events would wait that long
#: for a thread that reconciles.
_SWITCH_SECONDS = 0.0005
#: The maximum time that the close of a batch sends the deliveries that were left to it.
_LEFT_SECONDS = 5.0


@dataclass
class StreamingSummary:
    """The result of a streaming task: the number of committed batches, of events read, and of deliveries by rule and
    target.

    `backlog` is True if the task ended because more events were waiting than it could deliver within
    `backlog_seconds`.
    """

    batches: int = 0
    events: int = 0
    backlog: bool = False
    delivered: Counter[Key] = field(default_factory=Counter)


def deliver_streaming(runtime: Runtime, runner: str, stop: Stop, bounds: Bounds = UNBOUNDED) -> StreamingSummary:
    """Deliver a runner's events as they arrive until `stop` is set or a bound is reached. Then finish the open batches.

    Raises UserError if it cannot deliver a rule, StreamingLeaseTakenError if another process has the lease, and
    InfrastructureError if another process took the lease during the delivery.
    """
    refuse_unfit(runtime.rule_set().for_runner(runner), has_spark=not bounds.makes_retries)
    compile_ahead()  # so that no event waits for it: it takes seconds, or a minute after a change of the matcher
    lease = LeaseKeeper(runtime, runner, stop, bounds)
    with no_garbage_collection(), closing(StreamingBus(runtime)) as bus:
        loop = _StreamingLoop(runtime, runner, lease, bus)
        if bounds.is_standby:
            make_ready(runtime, runner, bus)
        with lease:
            done = loop.run()
        lease.refuse_if_lost()
        return done


class _StreamingLoop:
    def __init__(self, runtime: Runtime, runner: str, lease: LeaseKeeper, bus: StreamingBus) -> None:
        self._runtime, self._runner, self._lease = runtime, runner, lease
        self._done = StreamingSummary()
        self._bus = bus
        self._http = http_loop()
        self._committer = Committer(runtime.settings, lease.stop)
        self._former: BatchClose | None = None  # the close that is in progress
        self._following: Batch | None = None  # the batch that was opened after the one that is being closed
        self._taken: dict[str, TakenMessages] = {}  # by the id of each batch that is not closed yet
        self._is_behind = False  # whether too many events waited at the last close; see `_is_backlog`
        self._ended = threading.Event()
        self._busy_seconds = 0.0
        self._pools: Mapping[str, PoolSlots] | None = lease.bounds.pools()
        beside = [self._retry] if lease.bounds.makes_retries else []
        beside += [self._refresh_pools] if self._pools is not None else []
        self._beside = [threading.Thread(target=each, name=each.__name__, daemon=True) for each in beside]

    def run(self) -> StreamingSummary:
        for thread in self._beside:
            thread.start()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            self._former = self._handed_over_batch()
            self._deliver()
        finally:
            sys.setswitchinterval(interval)
            self._bus.close()
            self._http.close()
            self._committer.close()
            self._ended.set()
            for thread in self._beside:
                thread.join()
        return self._done

    def _deliver(self) -> None:
        while self._former is not None or not self._lease.is_over:
            try:
                self._run_batch()
            except InfrastructureError as error:  # the next listen returns the batch, to be finished by the stages
                log.warning("runner %s: the batch failed and is continued: %s", self._runner, error)
                self._lease.stop.wait(_RETRY_SECONDS)
            gc.collect()

    def _run_batch(self) -> None:
        former, self._former = self._former, None
        following, self._following = self._following, None
        batch = following or self._next_batch()
        if batch is None:
            return
        on_large = self._committer.start if Committer.can_reconcile(self._runtime, batch) else None
        if self._http.has_failed:
            self._http = http_loop()
        open_batch = StreamingBatch(
            self._runtime, batch, self._lease, self._bus, self._http, self._pools, former, on_large
        )
        self._taken[batch.batch_id] = open_batch.taken
        try:
            kept = open_batch.run()
        finally:
            if former is not None:
                former.wait()
        self._done.events += open_batch.events
        self._busy_seconds += open_batch.busy_seconds
        if not kept:
            return
        if self._lease.has_standby and not open_batch.events:  # the standby opens a batch
            open_batch.end()
            self._lease.hand_over_lease(None)
            return
        if self._lease.has_standby:
            self._hand_over_lease(open_batch)
        if open_batch.events and not self._lease.is_over:
            self._following = self._open_behind(open_batch.batch, open_batch.ends)
        if self._following is None:
            self._end(open_batch)
        else:
            self._former = BatchClose(open_batch.targets, partial(self._end, open_batch))

    def _hand_over_lease(self, open_batch: StreamingBatch) -> None:
        """Hand over the lease to the standby, together with an open batch that has events."""
        try:
            if open_batch.record():
                self._lease.hand_over_lease(open_batch.batch.batch_id)
        except InfrastructureError:
            open_batch.abandon()
            raise

    def _next_batch(self) -> Batch | None:
        """Return an open and empty batch, or None if there is none at the moment."""
        if self._runtime.ledger.batches.unfinished(self._runner) is None and self._is_backlog():
            self._done.backlog = True
            self._lease.finish()
            return None
        batch = self._batch_from_listen()
        if batch is None:  # ingestion is stopped, or another runner's batch comes first
            self._lease.stop.wait(_RETRY_SECONDS)
            return None
        if batch.state != "open":
            # Another process did not finish the batch, or it was planned during a rule transfer, so the stages send it.
            if is_delivered_in_stages(self._runtime, self._runner) and self._lease.bounds.others_at_work():
                self._lease.finish()
                return None
            self._close(self._runtime, batch.batch_id, self._lease.stop)
            self._lease.note_events()  # the time to finish the batch does not count as idle
            return None
        if not self._done.batches:
            self._lease.note_events()  # the time to start does not count as idle
        return batch

    def _batch_from_listen(self) -> Batch | None:
        batch_id = listen(self._runtime, self._runner, holder=self._lease.holder)
        if batch_id is None:
            return None
        try:
            batch = self._runtime.ledger.batches.get(batch_id)
        except NotFoundError:  # it was empty, and its previous holder, which had been suspended, dropped it
            return None
        if batch.state == "open":
            self._runtime.ledger.streaming.record_open_batch(self._runner, self._lease.holder, batch_id)
        return batch

    def _handed_over_batch(self) -> BatchClose | None:
        """Open the batch after the one that the previous streaming task handed over.

        Returns the close of the batch that was handed over, or None if there is none or if its close has ended.
        """
        left = self._lease.handoff
        if left is None:
            return None
        batch = self._runtime.ledger.batches.get(left.batch_id)
        ends = {span.partition: span.end for span in self._runtime.ledger.batches.ranges(left.batch_id)}
        self._following = self._open_behind(batch, ends)
        close = BatchClose(None, partial(self._await_former, left))
        if self._following is not None:
            return close
        close.wait()
        return None

    def _await_former(self, left: Handoff) -> None:
        """Wait until the previous streaming task has closed its batch.

        If that task dies first, close the batch in this process.
        """
        wait_until_closed(self._runtime, left, self._lease.stop)
        batch = self._runtime.ledger.batches.get(left.batch_id)
        if batch.state != "committed" and end_open(self._runtime, batch, self._lease.holder):
            self._close(self._short_runtime, batch.batch_id, self._lease.stop)

    def _open_behind(self, former: Batch, ends: Mapping[Partition, int]) -> Batch | None:
        """Open the next batch while the previous one is being closed.

        Returns None if the close must end first, so that `listen` can plan the next batch.
        """
        if self._is_behind:
            return None
        try:
            source = self._bus.open(self._runtime.rules_of(former).buses[former.bus])
            return open_following(self._runtime, former, ends, source, self._lease.holder)
        except EventBridgeError as error:  # if the cause persists, `listen` raises the error again after the close
            log.warning("runner %s: the next batch waits until the former one is closed: %s", self._runner, error)
            return None

    def _end(self, open_batch: StreamingBatch) -> None:
        """Close an open batch, if it has events and still belongs to this streaming task."""
        has_events = open_batch.end()
        self._done.delivered.update(open_batch.targets.delivered)
        if has_events:
            self._close_batch(open_batch)
            repeat_bus_commits(self._runtime, self._runner)
        self._taken.pop(open_batch.batch.batch_id, None)
        self._is_behind = not self._lease.is_over and self._is_backlog()

    def _close_batch(self, open_batch: StreamingBatch) -> None:
        """Reconcile a batch. For a few seconds, also send the deliveries that were left to its close.

        Deliveries that are not sent become pending.
        """
        batch = open_batch.batch
        left = targets_sent_at_close(self._runtime.rules_of(batch)) if open_batch.has_left else None
        if left:
            self._close(self._short_runtime, batch.batch_id, self._lease.stop, left)
        elif (
            open_batch.is_large
            and Committer.can_reconcile(self._runtime, batch)
            and self._committer.reconcile(batch.batch_id, self._pools)
        ):
            self._done.batches += 1
        else:
            self._close(self._runtime, batch.batch_id, STOPPED)

    @property
    def _short_runtime(self) -> Runtime:
        """The runtime for a close that sends deliveries, with a push budget of a few seconds."""
        budget = min(_LEFT_SECONDS, self._runtime.settings.push_timeout)
        return replace(self._runtime, settings=self._runtime.settings.model_copy(update={"push_timeout": budget}))

    def _close(self, runtime: Runtime, batch_id: str, stop: Stop, only: Collection[Key] | None = None) -> None:
        for report in reconcile(runtime, batch_id, self._pools, stop, only, taken=self._taken.get(batch_id)):
            self._done.delivered.update({(each.rule, each.target): each.delivered for each in report.targets})
        self._taken.pop(batch_id, None)
        self._done.batches += 1

    def _is_backlog(self) -> bool:
        """Return whether more events are waiting than this streaming task can deliver within `backlog_seconds`."""
        seconds = self._lease.bounds.backlog_seconds
        if seconds is None:
            return False
        waiting = waiting_events(self._runtime, self._runner) or 0
        measured = self._done.events / self._busy_seconds if self._busy_seconds > 1 else 0.0
        return waiting > seconds * max(measured, _EVENTS_A_SECOND)

    def _refresh_pools(self) -> None:
        while not self._ended.wait(_POOLS_SECONDS):
            self._pools = self._lease.bounds.pools()

    def _retry(self) -> None:
        while not self._ended.wait(_RETRY_SECONDS) and not self._lease.is_over:
            try:
                if not anything_waits_for_retry(self._runtime, self._runner):
                    continue
                deliver_retries(self._runtime, self._runner, self._lease.stop)
                deliver_deferred_matches(
                    self._runtime, self._runner, InProcessRouter(self._runtime.store), self._lease.stop
                )
            except EventBridgeError as error:
                log.warning("runner %s: pending deliveries could not be sent: %s", self._runner, error)
