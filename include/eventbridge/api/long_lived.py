"""Keeps what a server holds for long, such as sets of 10,000 rules, out of Python's search for reference cycles."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: CPU time of a search from which on it is worth it: a search of a heap without large rule sets takes less.
_LONG_SECONDS = 0.1


@contextmanager
def long_lived_set_aside(long_seconds: float = _LONG_SECONDS) -> Iterator[None]:
    """For the block, leave out of further searches for cycles what one that took long found alive.

    A full search goes through every object, half a second for two sets of 10,000 rules, and holds the call that it
    falls on. What is set aside is still freed when nothing refers to it, except for cycles: so a search sets aside
    only when it took `long_seconds`, which is about once for each set of rules.
    """
    began = 0.0

    def note(phase: str, search: Mapping[str, Any]) -> None:
        nonlocal began
        if search["generation"] != 2:
            return
        if phase == "start":
            began = time.thread_time()
        elif time.thread_time() - began >= long_seconds:
            gc.freeze()

    gc.callbacks.append(note)
    try:
        yield
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()
