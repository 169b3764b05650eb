"""The lease of a shift: one process at a time delivers a runner's events as they come, and for how long."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eventbridge.decision.chunking import PoolSlots
from eventbridge.errors import EventBridgeError, ShiftTakenError
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: How long a shift holds unless it is renewed, and how often it is: a loop that dies is taken over after that.
_LEASE = timedelta(seconds=6)
_RENEW_SECONDS = 2.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Bounds:
    """What bounds a shift; None: nothing does.

    It ends after `seconds`, or after `idle_seconds` without an event; `patience_seconds` it waits for a former shift to
    run out. What waits longer than `backlog_seconds` is handed over. `pools` tells the Airflow pools as they stand.
    """

    seconds: float | None = None
    idle_seconds: float | None = None
    backlog_seconds: float | None = None
    patience_seconds: float = 0.0
    makes_retries: bool = True
    pools: Callable[[], Mapping[str, PoolSlots] | None] = lambda: None


UNBOUNDED: Final = Bounds()


class Lease:
    """A runner's shift, renewed by a thread of its own; lost or stopped, or at its bounds, `over` is set."""

    def __init__(self, work: Runtime, runner: str, stop: threading.Event, bounds: Bounds = UNBOUNDED) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self.stop = stop
        self.bounds = bounds
        self._began = self._came = time.monotonic()
        self._work, self._runner = work, runner
        self.lost = threading.Event()  # another may have the shift
        self._ended = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._renew, name="shift", daemon=True)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be begun."""
        if self._finished or self.stop.is_set() or self.lost.is_set():
            return True
        now, bounds = time.monotonic(), self.bounds
        too_long = bounds.seconds is not None and now - self._began >= bounds.seconds
        return too_long or (bounds.idle_seconds is not None and now - self._came >= bounds.idle_seconds)

    def came(self) -> None:
        """Note that events came: the shift is not idle."""
        self._came = time.monotonic()

    def finish(self) -> None:
        """Begin nothing more: the shift ends before its time."""
        self._finished = True

    def __enter__(self) -> Lease:
        end = time.monotonic() + self.bounds.patience_seconds
        while not self._take() and not (self._end_of_dead() and self._take()):
            if time.monotonic() >= end or self.stop.wait(_LOOK_SECONDS):
                raise ShiftTakenError(
                    f"another process delivers the events of runner {self._runner!r}, in a shift. "
                    "Wait until it ends; `eventbridge status` shows its batches"
                )
        self._began = self._came = time.monotonic()
        self._thread.start()
        return self

    def _end_of_dead(self) -> bool:
        """End the shift of a process of this host that is there no more, so that nobody waits for it to run out.

        If its number was given to another process it runs out. What it had recorded stands, whoever ends it.
        """
        shift = self._work.ledger.shift(self._runner)
        host, _, rest = (shift.holder if shift is not None else "").rpartition(":")[0].rpartition(":")
        if shift is None or host != socket.gethostname() or not rest.isdecimal() or _is_there(int(rest)):
            return shift is None
        log.warning("runner %s: process %s, which had its shift, is gone", self._runner, rest)
        return self._work.ledger.end_shift(self._runner, shift.holder)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._work.ledger.end_shift(self._runner, self.holder)

    def _take(self) -> bool:
        return self._work.ledger.take_shift(self._runner, self.holder, self._work.ledger.now() + _LEASE)

    def _renew(self) -> None:
        while not self._ended.wait(_RENEW_SECONDS):
            try:
                kept = self._take()
            except EventBridgeError as error:
                log.warning("runner %s: its shift could not be renewed: %s", self._runner, error)
                continue
            if not kept:
                log.warning("runner %s: another process has taken its shift", self._runner)
                self.lost.set()
                return


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
