"""Keeps long-lived objects, such as sets of 10,000 rules, out of Python's garbage collection."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: CPU time of a full collection that is worth avoiding; without large rule sets, a collection takes less.
_LONG_SECONDS = 0.1


@contextmanager
def long_lived_set_aside(long_seconds: float = _LONG_SECONDS) -> Iterator[None]:
    """During the block, exclude the objects that survive a long garbage collection from later collections.

    A full collection visits every object, which takes half a second for two sets of 10,000 rules, and delays the call
    during which it happens. Excluded objects are still freed by reference counting, but not if they form a cycle.
    Therefore only a collection of at least `long_seconds` excludes them, about once for each set of rules.
    """
    began = 0.0

    def measure(phase: str, collection: Mapping[str, Any]) -> None:
        nonlocal began
        if collection["generation"] != 2:
            return
        if phase == "start":
            began = time.thread_time()
        elif time.thread_time() - began >= long_seconds:
            gc.freeze()

    gc.callbacks.append(measure)
    try:
        yield
    finally:
        gc.callbacks.remove(measure)
        gc.unfreeze()
