"""Says in the log of `route` that Spark is still at work, and why the first batch of an installation takes minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: A batch on a warm Spark is routed in seconds.
_EVERY_SECONDS = 30.0


@contextmanager
def slow_spark(say: Callable[[str], None], every_seconds: float = _EVERY_SECONDS) -> Iterator[None]:
    """Say every 30 s, from another thread, that the body waits for Spark; a shorter body says nothing."""
    begun, ended = time.monotonic(), threading.Event()

    def watch() -> None:
        while not ended.wait(every_seconds):
            say(
                f"Spark has been at work for {time.monotonic() - begun:.0f} s. Workers that never ran this version "
                "compile the matcher first, which takes up to three minutes; run `eventbridge compile` where Spark's "
                "workers run, as their user, before the first batch"
            )

    thread = threading.Thread(target=watch, name="slow-spark", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
