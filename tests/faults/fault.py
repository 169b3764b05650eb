"""What may go wrong in a run of a stage: it dies at its n-th call, is killed there, sees it fail, or stands still.

`Fault` is what the harness orders; `Hook` is what carries it out inside the forked process.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy.exc import OperationalError

from eventbridge import fault_points
from eventbridge.errors import BusError, StoreError
from eventbridge.runtime.claims import CLAIM_THREAD

#: Exit codes of a run: stopped by its own fault; ended with an error of the product.
DIED = 77
REFUSED = 78
#: What `waitpid` says of a process that SIGKILL ended.
KILLED = -9

Mode = Literal["count", "exit", "kill", "fail", "pause"]
#: The three ways of counting calls: those to die at, those that may fail, those to stand still at.
Counted = Literal["die", "fail", "pause"]
#: The names of the calls that were counted, in order.
Points = dict[Counted, list[str]]

#: Calls of the operating system below store and file targets: these fail one by one, the points around them kill.
_SYSTEM_CALLS = ("fsync", "link", "replace", "write")

#: A call that fails after it was done: its response was lost on the way.
_LOST_RESPONSES = {"ledger.commit.done", "store.put.done", "store.create.done", "bus.commit.done"}
_FAILING = {
    *(f"system.{name}" for name in _SYSTEM_CALLS),
    *_LOST_RESPONSES,
    "ledger.begin",
    "ledger.execute",
    "ledger.commit",
    "bus.read",
    "bus.commit",
}
_FAILING_READS = {"ledger.select", "store.get", "store.open", "store.exists", "store.list", "store.size"}

#: Points at which no lock of the ledger is held: a process that stops there blocks no other.
_PAUSABLE = {"target.send", "target.responded", "bus.read", "bus.commit", "store.open", "store.get"}
_PAUSABLE |= {"store.delete", "store.delete.done"}
_PAUSABLE |= {f"store.{verb}{when}" for verb in ("put", "create") for when in ("", ".written", ".named", ".done")}


@dataclass(frozen=True)
class Fault:
    """What happens at the `at`-th call, counted from 1; `lasting`: a failure continues from there to the end.

    `reads`: calls that only read are counted among those that may fail.
    """

    mode: Mode
    at: int = 0
    reads: bool = False
    lasting: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields, for `Fault(**fields)`."""
        return asdict(self)


class Hook:
    """Counts the calls of this process and does at the n-th what its fault says.

    `ask` sends one word to the fork server: `kill`, upon which this process is ended from outside, or `paused`,
    upon which it waits until it is resumed.
    """

    def __init__(self, fault: Fault, ask: Callable[[str], None]) -> None:
        self._fault = fault
        self._ask = ask
        self._lock = threading.Lock()
        self._resumed = threading.Event()
        self._resumed.set()
        self.points: Points = {"die": [], "fail": [], "pause": []}

    def install(self) -> None:
        """Begin to count; the system calls that files are written with are counted too."""
        for name in _SYSTEM_CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        fault_points.install(self)

    def __call__(self, point: str) -> None:
        """Take note of a call; may not return.

        Calls of the thread that renews the claim of a push come by the clock, and are not counted. That thread stands
        still with the process before a renewal, but never within one, where it holds the write lock of the ledger: all
        other processes would wait for it.
        """
        if threading.current_thread().name == CLAIM_THREAD:
            if point == "claim.renew":
                self._resumed.wait()
            return
        for counted in self._counts_as(point):
            with self._lock:
                self.points[counted].append(point)
                number = len(self.points[counted])
            if counted == _COUNTED_BY[self._fault.mode]:
                self._act(point, number)

    def _counts_as(self, point: str) -> list[Counted]:
        system = point.startswith("system.")
        found: list[Counted] = []
        if not system and point not in fault_points.READS:
            found.append("die")
        if point in _FAILING or (self._fault.reads and point in _FAILING_READS):
            found.append("fail")
        if point in _PAUSABLE:
            found.append("pause")
        return found

    def _act(self, point: str, number: int) -> None:
        due = number == self._fault.at or (self._fault.lasting and number > self._fault.at)
        if not due:
            return
        match self._fault.mode:
            case "exit":
                os._exit(DIED)
            case "kill":
                self._ask("kill")
                threading.Event().wait()  # the other threads continue until the signal comes
            case "pause":
                self._resumed.clear()
                self._ask("paused")
                self._resumed.set()
            case "fail":
                raise failure(point, number)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self(f"system.{name}")
            return call(*arguments, **named)

        return counted


_COUNTED_BY: dict[Mode, Counted | None] = {
    "count": None,
    "exit": "die",
    "kill": "die",
    "fail": "fail",
    "pause": "pause",
}


def failure(point: str, number: int) -> Exception:
    """Return what a call raises that fails: disks and databases take turns with their two commonest failures."""
    odd = bool(number % 2)
    if point == "ledger.commit.done" or (point.startswith("ledger.") and odd):
        lost = sqlite3.OperationalError("server closed the connection unexpectedly")
        return OperationalError(point, {}, lost)
    if point.startswith("ledger."):
        return OperationalError(point, {}, sqlite3.OperationalError("database is locked"))
    if point.startswith("bus."):
        return BusError(f"{point}: the bus does not respond. This failure was ordered.")
    if point in _LOST_RESPONSES:
        return StoreError(f"{point}: the response was lost. This failure was ordered.")
    number = errno.EIO if odd else errno.ENOSPC
    return OSError(number, os.strerror(number))
