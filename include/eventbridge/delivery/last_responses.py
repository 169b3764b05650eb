"""Decides how long a push that must end waits for responses to its requests in flight."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from eventbridge.delivery.run import TargetRun
from eventbridge.runtime.stop import Stop

#: How long a push that stops waiting, or fails, gives the threads of its targets to notice.
NOTICE_SECONDS: Final = 1.0


class LastResponses:
    """Waits for the last responses of a push: until the time-outs of what is in flight, or until its stop is over.

    After that, requests in flight are recorded as sent. A thread that hangs in a call is abandoned.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._abandoned_at: float | None = None
        self._are_over = False

    def are_over(self, outstanding: Sequence[TargetRun], *, is_stale: bool) -> bool:
        """Return whether the push stops waiting, although runs are `outstanding`; call it repeatedly.

        `is_stale`: the push can record nothing more, so it waits for no response.
        """
        if self._abandoned_at is None:
            if not (is_stale or self._timed_out(outstanding)):
                return False
            self._abandoned_at = time.monotonic()
            for run in outstanding:
                run.abandon()
        if not self._are_over and time.monotonic() - self._abandoned_at > NOTICE_SECONDS:
            self._are_over = True
            for run in outstanding:
                run.record_in_flight()
        return self._are_over

    def _timed_out(self, outstanding: Sequence[TargetRun]) -> bool:
        if not self._stop.is_set():
            return False
        timeout = max((run.settings.timeout_seconds for run in outstanding if not run.has_ended), default=0.0)
        return self._stop.is_over(timeout + NOTICE_SECONDS)
