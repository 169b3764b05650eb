"""Logs in `route` that Spark is still running, and why the first batch of an installation takes minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: A batch on a warm Spark is routed in seconds.
_EVERY_SECONDS = 30.0


@contextmanager
def slow_spark(log_line: Callable[[str], None], every_seconds: float = _EVERY_SECONDS) -> Iterator[None]:
    """Log every 30 s, from another thread, that the block waits for Spark."""
    begun, ended = time.monotonic(), threading.Event()

    def watch() -> None:
        while not ended.wait(every_seconds):
            log_line(
                f"Spark has been running for {time.monotonic() - begun:.0f} s. Workers that run this version for "
                "the first time compile the matcher, which takes up to three minutes. To avoid this, run `eventbridge "
                "compile` where Spark's workers run, as their user, before the first batch"
            )

    thread = threading.Thread(target=watch, name="slow-spark", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
