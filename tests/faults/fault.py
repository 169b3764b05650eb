"""Makes a run of a stage exit, be killed, fail or pause at its n-th call.

`Fault` describes the fault, and `Hook` carries it out inside the forked process.
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

#: The exit codes of a run that its own fault ended, and of one that ended with an error of the product.
DIED = 77
REFUSED = 78
#: The exit code of a process that SIGKILL ended.
KILLED = -9

Mode = Literal["count", "exit", "kill", "fail", "pause"]
#: The calls that are counted: those to die at, those that may fail, and those to pause at.
Counted = Literal["die", "fail", "pause"]
#: The names of the calls that were counted, in order.
Points = dict[Counted, list[str]]

#: The system calls of the store and of file targets. Each can fail; the fault points around them can kill.
_SYSTEM_CALLS = ("fsync", "link", "replace", "write")

#: Calls that fail after they took effect, as if the response had been lost.
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

#: Points at which no lock of the ledger is held, so a process that pauses there blocks no other.
_PAUSABLE = {"target.send", "target.responded", "bus.read", "bus.commit", "store.open", "store.get"}
_PAUSABLE |= {"store.delete", "store.delete.done"}
_PAUSABLE |= {f"store.{verb}{when}" for verb in ("put", "create") for when in ("", ".written", ".named", ".done")}


@dataclass(frozen=True)
class Fault:
    """The fault at the `at`-th call, counted from 1; if `lasting`, all later calls fail too.

    If `reads`, calls that only read are among those that may fail.
    """

    mode: Mode
    at: int = 0
    reads: bool = False
    lasting: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields, for `Fault(**fields)`."""
        return asdict(self)


class Hook:
    """Counts the calls of this process and carries out the fault at the n-th call.

    `ask` sends one word to the fork server: `kill` has this process killed from outside, and `paused` is sent before
    it waits until it is resumed.
    """

    def __init__(self, fault: Fault, ask: Callable[[str], None]) -> None:
        self._fault = fault
        self._ask = ask
        self._lock = threading.Lock()
        self._resumed = threading.Event()
        self._resumed.set()
        self.points: Points = {"die": [], "fail": [], "pause": []}

    def install(self) -> None:
        """Start counting calls, including the system calls that write files."""
        for name in _SYSTEM_CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        fault_points.install(self)

    def __call__(self, point: str) -> None:
        """Count a call; may not return.

        Calls of the thread that renews a push's claim depend on the clock and are not counted. That thread pauses with
        the process before a renewal, but never during one, when it holds the ledger's write lock, for which all other
        processes would wait.
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
    """Return the exception of a failing call; disks and databases alternate between their two most common errors."""
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
