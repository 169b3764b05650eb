"""Asks running deliveries to stop: they start no new requests, but wait for responses to those in flight."""

from __future__ import annotations

import math
import threading
import time


class Stop(threading.Event):
    """Once set, no request is started, and each request in flight ends with its response or its timeout.

    `listens_seconds` bounds the wait; after that time, requests in flight are recorded as sent. Only the first `set`
    counts. A signal handler may call any method.
    """

    def __init__(self, listens_seconds: float = math.inf) -> None:
        super().__init__()
        self._listens_seconds = listens_seconds
        self._set_at = math.inf

    def set(self) -> None:
        """Ask for the stop."""
        if not super().is_set():  # a signal handler must not wait for a lock that the thread that it interrupts holds
            self._set_at = time.monotonic()
            super().set()

    def set_at_once(self) -> None:
        """Ask for the stop, and end the wait for responses immediately."""
        self._listens_seconds = -math.inf
        self.set()

    def is_over(self, within_seconds: float = math.inf) -> bool:
        """Return whether the wait is over, because `within_seconds` or its own bound has passed since `set`."""
        return super().is_set() and time.monotonic() - self._set_at >= min(within_seconds, self._listens_seconds)
