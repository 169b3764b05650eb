"""The lease of a streaming task: one process at a time delivers a runner's events as they come, and for how long.

Near its end a streaming task asks for a standby; it is handed over at the end of a batch, without a gap.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eventbridge.decision.chunking import PoolSlots
from eventbridge.errors import EventBridgeError, StreamingLeaseTakenError
from eventbridge.stages.runtime import processes
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.runtime.stop import Stop

log = logging.getLogger(__name__)

#: How long a lease holds unless it is renewed, and how often it is: a loop that dies is taken over after that.
_LEASE = timedelta(seconds=6)
_RENEW_SECONDS = 2.0
#: How often who waits for a streaming task looks at it; the standby is waited for meanwhile, by events.
_POLL_SECONDS, _STANDING_SECONDS = 0.1, 0.01
#: So long before its end a streaming task asks for the next, and so long after it waits for one: a DAG run is to start,
#: and to load and compile its code, which takes a few seconds, and many where the machine is busy.
_LEAD_SECONDS = 20.0


@dataclass(frozen=True)
class Bounds:
    """What bounds a streaming task; None: nothing does.

    It ends after `seconds`, or after `idle_seconds` without an event; `patience_seconds` it waits for a former lease to
    run out. What waits longer than `backlog_seconds` is handed over. `pools` tells the Airflow pools as they stand.
    `requests_standby`: before its end somebody hears, and starts the process that goes on. `is_standby`: it is that
    one. `others_at_work` tells whether a batch that no streaming task opened may be in the hands of another. `on_begin`
    is called once the lease is this process's.
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
    """What a streaming task was handed over with: its former holder, and the batch that this one closes."""

    holder: str
    batch_id: str


class LeaseKeeper:
    """A runner's streaming lease, renewed by a thread of its own; lost, handed over or stopped, or at its bounds,
    `over` is set.
    """

    def __init__(self, runtime: Runtime, runner: str, stop: Stop, bounds: Bounds = UNBOUNDED) -> None:
        self.holder = f"{processes.this_process()}:{uuid.uuid4().hex}"
        self.stop = stop
        self.bounds = bounds
        self.handoff: Handoff | None = None
        self._began = self._came = time.monotonic()
        self._runtime, self._runner = runtime, runner
        self._before = ""  # who has the lease that this one waits for
        self.lost = threading.Event()  # another may have the lease
        self._ended = threading.Event()
        self._finished = False
        self._handed_over = False
        self._asked = False
        self._standby: str | None = None
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._renew, name="streaming lease", daemon=True)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be begun."""
        if self._finished or self._handed_over or self.stop.is_set() or self.lost.is_set():
            return True
        now, bounds = time.monotonic(), self.bounds
        grace = _LEAD_SECONDS if bounds.requests_standby else 0.0
        too_long = bounds.seconds is not None and now - self._began >= bounds.seconds + grace
        return too_long or (bounds.idle_seconds is not None and now - self._came >= bounds.idle_seconds)

    @property
    def has_standby(self) -> bool:
        """Whether there is a standby, to which the streaming task is to be handed over."""
        return self._standby is not None and not self.over

    def came(self) -> None:
        """Note that events came: the streaming task is not idle."""
        self._came = time.monotonic()

    def finish(self) -> None:
        """Begin nothing more: the streaming task ends before its time."""
        self._finished = True

    def hand_over_lease(self, batch_id: str | None) -> bool:
        """Give the lease to the standby, with the batch to close; False: it stays this one's."""
        with self._changing:
            standby, self._standby = self._standby, None
            if standby is not None and not self.lost.is_set():
                until = self._runtime.ledger.now() + _LEASE
                self._handed_over = self._runtime.ledger.hand_over_lease(
                    self._runner, self.holder, standby, until, batch_id
                )
        return self._handed_over

    def __enter__(self) -> LeaseKeeper:
        end = time.monotonic() + self.bounds.patience_seconds
        stands = self.bounds.is_standby
        said_at: float | None = None
        while not self._taken():
            now = time.monotonic()
            if stands and (said_at is None or now - said_at >= _RENEW_SECONDS):
                if not self._register_standby() and not self._taken():
                    raise self._refusal()
                said_at = now
            if now >= end or self.stop.wait(_STANDING_SECONDS if stands else _POLL_SECONDS):
                raise self._refusal()
        self._began = self._came = time.monotonic()
        self._thread.start()
        self.bounds.on_begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._runtime.ledger.release_streaming_lease(self._runner, self.holder)

    def _refusal(self) -> StreamingLeaseTakenError:
        return StreamingLeaseTakenError(
            f"another process delivers the events of runner {self._runner!r}, in a streaming task. "
            "Wait until it ends; `eventbridge status` shows its batches"
        )

    def _register_standby(self) -> bool:
        return self._runtime.ledger.register_standby(self._runner, self.holder, self._runtime.ledger.now() + _LEASE)

    def _taken(self) -> bool:
        """Take a lease that nobody has, or has any more, or that was handed over to this; a look where one is at
        work.
        """
        lease = self._runtime.ledger.streaming_lease(self._runner)
        if lease is None:
            return self._take()
        if lease.holder == self.holder:
            self.handoff = None if lease.batch_id is None else Handoff(self._before, lease.batch_id)
            return True
        self._before = lease.holder
        return is_gone(lease.holder) and self._end_of_dead(lease.holder) and self._take()

    def _end_of_dead(self, holder: str) -> bool:
        """End the lease of a process of this host that is there no more, so that nobody waits for it to run out.

        What it had recorded stands, whoever ends it.
        """
        log.warning("runner %s: process %s, which had its lease, is gone", self._runner, holder.split(":")[-2])
        return self._runtime.ledger.release_streaming_lease(self._runner, holder)

    def _take(self) -> bool:
        return self._runtime.ledger.acquire_streaming_lease(
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
        """Return the standby; ask for somebody once the end is near."""
        ledger, bounds = self._runtime.ledger, self.bounds
        if bounds.requests_standby and bounds.seconds is not None and not self._asked:
            ask_at = self._began + bounds.seconds - min(_LEAD_SECONDS, bounds.seconds / 3)
            self._asked = time.monotonic() >= ask_at
            if self._asked:
                ledger.request_standby(self._runner, self.holder)
        lease = ledger.streaming_lease(self._runner)
        return None if lease is None else lease.standby(ledger.now())


def is_gone(holder: str) -> bool:
    """Return whether the holder of a lease was a process of this host that is there no more.

    If its number was given to another process, or it is of another host, nobody knows: its lease runs out.
    """
    return processes.is_gone(holder.rpartition(":")[0])
