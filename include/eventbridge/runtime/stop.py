"""Stops running deliveries: they start no new requests, and wait for the responses to those in flight."""

from __future__ import annotations

import math
import threading
import time


class Stop(threading.Event):
    """A request to stop. Once it is set, no request is started, and those in flight end with a response or a timeout.

    `listens_seconds` limits the wait for responses. After that time, requests in flight are recorded as sent. Only the
    first `set` counts. A signal handler may call any method.
    """

    def __init__(self, listens_seconds: float = math.inf) -> None:
        super().__init__()
        self._listens_seconds = listens_seconds
        self._set_at = math.inf

    def set(self) -> None:
        """Request the stop."""
        if not super().is_set():  # a signal handler must not wait for a lock that the interrupted thread holds
            self._set_at = time.monotonic()
            super().set()

    def set_at_once(self) -> None:
        """Request the stop, and end the wait for responses immediately."""
        self._listens_seconds = -math.inf
        self.set()

    def is_over(self, within_seconds: float = math.inf) -> bool:
        """Return whether the wait for responses is over.

        It ends as soon as either `within_seconds` or `listens_seconds` have passed since `set`.
        """
        return super().is_set() and time.monotonic() - self._set_at >= min(within_seconds, self._listens_seconds)
