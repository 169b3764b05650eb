"""Keeps the lease of a streaming task, so that at most one process at a time delivers a runner's events."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eventbridge.errors import EventBridgeError, InfrastructureError, StreamingLeaseTakenError
from eventbridge.policy.chunking import PoolSlots
from eventbridge.runtime import claims
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

log = logging.getLogger(__name__)

#: The time that a lease lasts unless it is renewed, and the time between renewals. If a streaming task on another host
#: dies, it is replaced after its lease has run out.
_LEASE = timedelta(seconds=6)
_RENEW_SECONDS = 2.0
#: The time between two checks of the lease by a process that waits for it. A standby checks more often, because events
#: are waiting for it.
_POLL_SECONDS, _STANDING_SECONDS = 0.1, 0.01
#: A streaming task requests a standby this long before its end, and waits for one this long after its end. The
#: standby's DAG run must start, and load and compile its code, which takes a few seconds, or longer on a busy machine.
_LEAD_SECONDS = 20.0


@dataclass(frozen=True)
class Bounds:
    """The limits of a streaming task, each None if there is no limit, and how the task works with other processes.

    The task ends after `seconds`, or after `idle_seconds` without an event. It waits up to `patience_seconds` for
    another process's lease to end. If events would have to wait longer than `backlog_seconds`, the task ends and leaves
    them to batch mode. If `makes_retries`, it also sends the runner's retry batches. `pools` returns the current
    Airflow pools. If `requests_standby`, the task requests a standby before its end. If `is_standby`, it is a standby
    itself. `others_at_work` returns whether another process may be working on a batch that no streaming task opened.
    `on_begin` is called as soon as this process has the lease.
    """

    seconds: float | None = None
    idle_seconds: float | None = None
    backlog_seconds: float | None = None
    patience_seconds: float = 0.0
    makes_retries: bool = True
    pools: Callable[[], Mapping[str, PoolSlots] | None] = lambda: None
    requests_standby: bool = False
    is_standby: bool = False
    others_at_work: Callable[[], bool] = lambda: False
    on_begin: Callable[[], None] = lambda: None


UNBOUNDED: Final = Bounds()


@dataclass(frozen=True)
class Handoff:
    """The values that a streaming task receives in a handover: the previous holder, and the batch that the previous
    holder closes."""

    holder: str
    batch_id: str


class LeaseKeeper:
    """A runner's streaming lease, which a separate thread renews.

    `is_over` is True once the lease is lost or handed over, or once the task must stop or has reached a bound. A
    streaming task that loses its lease takes no more events and stops waiting for responses (`open_batch.py`). Then
    `refuse_if_lost` raises an error.
    """

    def __init__(self, runtime: Runtime, runner: str, stop: Stop, bounds: Bounds = UNBOUNDED) -> None:
        self.holder = f"{claims.this_process()}:{uuid.uuid4().hex}"
        self.stop = stop
        self.bounds = bounds
        self.handoff: Handoff | None = None
        self._began = self._events_at = time.monotonic()
        self._runtime, self._runner = runtime, runner
        self._before = ""  # the holder that this process waits for
        self.lost = threading.Event()  # set once another process has the lease
        self._ended = threading.Event()
        self._finished = False
        self._handed_over = False
        self._has_requested = False
        self._standby: str | None = None
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._renew, name="streaming lease", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether the task must begin no more work."""
        if self._finished or self._handed_over or self.stop.is_set() or self.lost.is_set():
            return True
        now, bounds = time.monotonic(), self.bounds
        grace = _LEAD_SECONDS if bounds.requests_standby else 0.0
        too_long = bounds.seconds is not None and now - self._began >= bounds.seconds + grace
        return too_long or (bounds.idle_seconds is not None and now - self._events_at >= bounds.idle_seconds)

    @property
    def has_standby(self) -> bool:
        """Whether a standby is ready, and the lease can be handed over to it."""
        return self._standby is not None and not self.is_over

    def refuse_if_lost(self) -> None:
        """Raise InfrastructureError if another process has taken the lease."""
        if self.lost.is_set():
            raise InfrastructureError(
                f"another process has taken the lease of runner {self._runner!r}, because this process was suspended "
                "or could not reach the ledger. Nothing is lost. If the other process has ended, start this one again"
            )

    def note_events(self) -> None:
        """Record that events have arrived, so that the streaming task does not count as idle."""
        self._events_at = time.monotonic()

    def finish(self) -> None:
        """End the streaming task early: it begins no more work."""
        self._finished = True

    def hand_over_lease(self, batch_id: str | None) -> bool:
        """Transfer the lease to the standby, with the batch that this process closes, if any.

        Returns False if this process keeps the lease.
        """
        with self._changing:
            standby, self._standby = self._standby, None
            if standby is not None and not self.lost.is_set():
                until = self._runtime.ledger.now() + _LEASE
                self._handed_over = self._runtime.ledger.streaming.hand_over_lease(
                    self._runner, self.holder, standby, until, batch_id
                )
        return self._handed_over

    def __enter__(self) -> LeaseKeeper:
        end = time.monotonic() + self.bounds.patience_seconds
        stands = self.bounds.is_standby
        registered_at: float | None = None
        while not self._try_take():
            now = time.monotonic()
            if stands and (registered_at is None or now - registered_at >= _RENEW_SECONDS):
                if not self._register_standby() and not self._try_take():
                    raise self._refusal()
                registered_at = now
            if now >= end or self.stop.wait(_STANDING_SECONDS if stands else _POLL_SECONDS):
                raise self._refusal()
        self._began = self._events_at = time.monotonic()
        self._thread.start()
        self.bounds.on_begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._runtime.ledger.streaming.release_lease(self._runner, self.holder)

    def _refusal(self) -> StreamingLeaseTakenError:
        return StreamingLeaseTakenError(
            f"another process is delivering the events of runner {self._runner!r} in a streaming task. "
            "Wait until it ends; `eventbridge status` shows its batches"
        )

    def _register_standby(self) -> bool:
        return self._runtime.ledger.streaming.register_standby(
            self._runner, self.holder, self._runtime.ledger.now() + _LEASE
        )

    def _try_take(self) -> bool:
        """Take the lease if it is free or has run out. Return whether this process has it, also after a handover.

        While another streaming task has the lease, this only reads the ledger.
        """
        lease = self._runtime.ledger.streaming.lease(self._runner)
        if lease is None:
            return self._take()
        if lease.holder == self.holder:
            self.handoff = None if lease.batch_id is None else Handoff(self._before, lease.batch_id)
            return True
        self._before = lease.holder
        return is_gone(lease.holder) and self._end_lease(lease.holder) and self._take()

    def _end_lease(self, holder: str) -> bool:
        """End the lease of a dead process on this host, so that no process has to wait until the lease runs out.

        The records of the dead process stay valid.
        """
        log.warning("runner %s: process %s, which had its lease, is dead", self._runner, holder.split(":")[-2])
        return self._runtime.ledger.streaming.release_lease(self._runner, holder)

    def _take(self) -> bool:
        return self._runtime.ledger.streaming.acquire_lease(
            self._runner, self.holder, self._runtime.ledger.now() + _LEASE
        )

    def _renew(self) -> None:
        while not self._ended.wait(_RENEW_SECONDS):
            with self._changing:
                if self._handed_over:
                    return
                try:
                    kept = self._take()
                    self._standby = self._find_standby() if kept else None
                except EventBridgeError as error:
                    log.warning("runner %s: its lease could not be renewed: %s", self._runner, error)
                    continue
            if not kept:
                log.warning("runner %s: another process has taken its lease", self._runner)
                self.lost.set()
                return

    def _find_standby(self) -> str | None:
        """Return the registered standby, or None. When the end of the task is near, also request one."""
        ledger, bounds = self._runtime.ledger, self.bounds
        if bounds.requests_standby and bounds.seconds is not None and not self._has_requested:
            request_at = self._began + bounds.seconds - min(_LEAD_SECONDS, bounds.seconds / 3)
            self._has_requested = time.monotonic() >= request_at
            if self._has_requested:
                ledger.streaming.request_standby(self._runner, self.holder)
        lease = ledger.streaming.lease(self._runner)
        return None if lease is None else lease.standby(ledger.now())


def is_gone(holder: str) -> bool:
    """Return whether the holder of a lease was a process of this host that no longer exists.

    Returns False if this cannot be known, because another process now has the same number, or because the holder is on
    another host. The lease of such a holder runs out.
    """
    return claims.is_gone(holder.rpartition(":")[0])


def anything_waits(runtime: Runtime, runner: str) -> bool:
    """Return whether a streaming task would have work: waiting events, an unfinished batch, or a runner to register."""
    return runtime.ledger.batches.unfinished(runner) is not None or waiting_events(runtime, runner) != 0


def is_delivered_in_stages(runtime: Runtime, runner: str) -> bool:
    """Return whether the runner has an unfinished batch that is not the open batch of its last streaming task.

    The stages finish such a batch, or a previous streaming task that has handed over its lease.
    """
    batch = runtime.ledger.batches.unfinished(runner)
    return (
        batch is not None
        and batch.state != "open"
        and batch.batch_id != runtime.ledger.streaming.last_open_batch(runner)
    )


def waiting_events(runtime: Runtime, runner: str) -> int | None:
    """Return how many messages no committed batch of the runner has taken, or None if the runner is not registered."""
    standing = runtime.ledger.offsets.committed(runner)
    if not standing:
        return None
    (bus,) = runtime.rule_set().for_runner(runner).buses.values()
    with closing(runtime.open_source(bus)) as source:
        return sum(
            end - standing.get(partition, source.earliest(partition)) for partition, end in source.ends().items()
        )
