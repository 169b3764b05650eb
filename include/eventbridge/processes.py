"""Cancels work whose caller has left or that takes too long, lowers the priority of a process, and gives child
processes an environment without secrets.

Loops whose length a caller chooses call `check_cancelled` at each step; a step whose own cost a caller chooses runs in
a child process (`bounded_call`, `store.sql_sandbox`), and the wait for it calls `check_cancelled`. `check_cancelled`
does nothing for work that has no limit and is not cancelled.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Final

from eventbridge.errors import InfrastructureError, UserError

#: Set by the caller that starts work in a thread; once the event is set, the work ends at its next step.
cancelled: Final[ContextVar[threading.Event | None]] = ContextVar("cancelled", default=None)
_limit: Final[ContextVar[tuple[float, float] | None]] = ContextVar("limit", default=None)

#: The variables that every child gets, for language, time zone and libraries. It is an allow-list, because any other
#: variable may hold a secret.
_NAMES: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")

#: The niceness of a process for a retry or redrive. If processors are busy, it gets a third of the processor time that
#: another process of the same worker gets.
NICENESS = 5
#: The niceness of a process for old work (replay, backtest), which gets a tenth. It is not 19, because a process
#: that holds the ledger's lock must progress.
OLD_NICENESS = 10


class Cancelled(InfrastructureError):
    """The caller has left, or this process is ending."""


class TimeSpent(UserError):
    """The work took too much time."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the work of this thread in this block to `seconds` of elapsed time.

    `check_cancelled` raises TimeSpent after that time.
    """
    before = _limit.set((time.monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _limit.reset(before)


def is_cancelled() -> bool:
    """Return whether the work of this thread is cancelled."""
    stop = cancelled.get()
    return stop is not None and stop.is_set()


def check_cancelled() -> None:
    """Raise Cancelled if the work of this thread is cancelled, TimeSpent if its time is over."""
    if is_cancelled():
        raise Cancelled("the call was cancelled: its caller no longer waits")
    limit = _limit.get()
    if limit is not None and time.monotonic() > limit[0]:
        raise TimeSpent(f"the call takes more than {limit[1]:g} s, the limit for one call. Request less data")


def child_environment(names: Collection[str] = ()) -> dict[str, str]:
    """Return this process's environment variables for a child: those without secrets, and those named in `names`."""
    return {name: os.environ[name] for name in (*_NAMES, *names) if name in os.environ}


@cache
def lower_priority_once(niceness: int) -> None:
    """Lower the priority of this process permanently, once; its existing threads keep their priority."""
    os.nice(niceness)
