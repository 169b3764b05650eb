"""The lease of a shift: one process at a time delivers a runner's events as they come, and for how long.

Near its end a shift asks for a process that stands by; it is passed on at the end of a window, without a gap.
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
from eventbridge.errors import EventBridgeError, ShiftTakenError
from eventbridge.stages.runtime import processes
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.runtime.stop import Stop

log = logging.getLogger(__name__)

#: How long a shift holds unless it is renewed, and how often it is: a loop that dies is taken over after that.
_LEASE = timedelta(seconds=6)
_RENEW_SECONDS = 2.0
#: How often who waits for a shift looks at it; who stands by is waited for meanwhile, by events.
_LOOK_SECONDS, _STANDING_SECONDS = 0.1, 0.01
#: So long before its end a shift asks for the next, and so long after it waits for one: a DAG run is to start, and to
#: load and compile its code, which takes a few seconds, and many where the machine is busy.
_LEAD_SECONDS = 20.0


@dataclass(frozen=True)
class Bounds:
    """What bounds a shift; None: nothing does.

    It ends after `seconds`, or after `idle_seconds` without an event; `patience_seconds` it waits for a former shift to
    run out. What waits longer than `backlog_seconds` is handed over. `pools` tells the Airflow pools as they stand.
    `asks_for_next`: before its end somebody hears, and starts the process that goes on. `stands_by`: it is that one.
    `others_at_work` tells whether a batch that no shift opened may be in the hands of another. `on_begin` is called
    once the shift is this process's.
    """

    seconds: float | None = None
    idle_seconds: float | None = None
    backlog_seconds: float | None = None
    patience_seconds: float = 0.0
    makes_retries: bool = True
    pools: Callable[[], Mapping[str, PoolSlots] | None] = lambda: None
    asks_for_next: bool = False
    stands_by: bool = False
    others_at_work: Callable[[], bool] = lambda: False
    on_begin: Callable[[], None] = lambda: None


UNBOUNDED: Final = Bounds()


@dataclass(frozen=True)
class Inherited:
    """What a shift was passed on with: its former holder, and the window that this one closes."""

    holder: str
    batch_id: str


class Lease:
    """A runner's shift, renewed by a thread of its own; lost, passed on or stopped, or at its bounds, `over` is set."""

    def __init__(self, work: Runtime, runner: str, stop: Stop, bounds: Bounds = UNBOUNDED) -> None:
        self.holder = f"{processes.this_process()}:{uuid.uuid4().hex}"
        self.stop = stop
        self.bounds = bounds
        self.inherited: Inherited | None = None
        self._began = self._came = time.monotonic()
        self._work, self._runner = work, runner
        self._before = ""  # who has the shift that this one waits for
        self.lost = threading.Event()  # another may have the shift
        self._ended = threading.Event()
        self._finished = False
        self._passed = False
        self._asked = False
        self._heir: str | None = None
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._renew, name="shift", daemon=True)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be begun."""
        if self._finished or self._passed or self.stop.is_set() or self.lost.is_set():
            return True
        now, bounds = time.monotonic(), self.bounds
        grace = _LEAD_SECONDS if bounds.asks_for_next else 0.0
        too_long = bounds.seconds is not None and now - self._began >= bounds.seconds + grace
        return too_long or (bounds.idle_seconds is not None and now - self._came >= bounds.idle_seconds)

    @property
    def has_heir(self) -> bool:
        """Whether a process stands by, to which the shift is to be passed on."""
        return self._heir is not None and not self.over

    def came(self) -> None:
        """Note that events came: the shift is not idle."""
        self._came = time.monotonic()

    def finish(self) -> None:
        """Begin nothing more: the shift ends before its time."""
        self._finished = True

    def pass_on(self, batch_id: str | None) -> bool:
        """Give the shift to the process that stands by, with the window to close; False: it stays this one's."""
        with self._changing:
            heir, self._heir = self._heir, None
            if heir is not None and not self.lost.is_set():
                until = self._work.ledger.now() + _LEASE
                self._passed = self._work.ledger.pass_on(self._runner, self.holder, heir, until, batch_id)
        return self._passed

    def __enter__(self) -> Lease:
        end = time.monotonic() + self.bounds.patience_seconds
        stands = self.bounds.stands_by
        said_at: float | None = None
        while not self._taken():
            now = time.monotonic()
            if stands and (said_at is None or now - said_at >= _RENEW_SECONDS):
                if not self._stand_by() and not self._taken():
                    raise self._refusal()
                said_at = now
            if now >= end or self.stop.wait(_STANDING_SECONDS if stands else _LOOK_SECONDS):
                raise self._refusal()
        self._began = self._came = time.monotonic()
        self._thread.start()
        self.bounds.on_begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._work.ledger.end_shift(self._runner, self.holder)

    def _refusal(self) -> ShiftTakenError:
        return ShiftTakenError(
            f"another process delivers the events of runner {self._runner!r}, in a shift. "
            "Wait until it ends; `eventbridge status` shows its batches"
        )

    def _stand_by(self) -> bool:
        return self._work.ledger.stand_by(self._runner, self.holder, self._work.ledger.now() + _LEASE)

    def _taken(self) -> bool:
        """Take a shift that nobody has, or has any more, or that was passed on to this; a look where one is at work."""
        shift = self._work.ledger.shift(self._runner)
        if shift is None:
            return self._take()
        if shift.holder == self.holder:
            self.inherited = None if shift.batch_id is None else Inherited(self._before, shift.batch_id)
            return True
        self._before = shift.holder
        return is_gone(shift.holder) and self._end_of_dead(shift.holder) and self._take()

    def _end_of_dead(self, holder: str) -> bool:
        """End the shift of a process of this host that is there no more, so that nobody waits for it to run out.

        What it had recorded stands, whoever ends it.
        """
        log.warning("runner %s: process %s, which had its shift, is gone", self._runner, holder.split(":")[-2])
        return self._work.ledger.end_shift(self._runner, holder)

    def _take(self) -> bool:
        return self._work.ledger.take_shift(self._runner, self.holder, self._work.ledger.now() + _LEASE)

    def _renew(self) -> None:
        while not self._ended.wait(_RENEW_SECONDS):
            with self._changing:
                if self._passed:
                    return
                try:
                    kept = self._take()
                    self._heir = self._next() if kept else None
                except EventBridgeError as error:
                    log.warning("runner %s: its shift could not be renewed: %s", self._runner, error)
                    continue
            if not kept:
                log.warning("runner %s: another process has taken its shift", self._runner)
                self.lost.set()
                return

    def _next(self) -> str | None:
        """Return who stands by; ask for somebody once the end is near."""
        ledger, bounds = self._work.ledger, self.bounds
        if bounds.asks_for_next and bounds.seconds is not None and not self._asked:
            ask_at = self._began + bounds.seconds - min(_LEAD_SECONDS, bounds.seconds / 3)
            self._asked = time.monotonic() >= ask_at
            if self._asked:
                ledger.ask_for_next(self._runner, self.holder)
        shift = ledger.shift(self._runner)
        return None if shift is None else shift.stand_by(ledger.now())


def is_gone(holder: str) -> bool:
    """Return whether the holder of a shift was a process of this host that is there no more.

    If its number was given to another process, or it is of another host, nobody knows: its shift runs out.
    """
    return processes.is_gone(holder.rpartition(":")[0])
