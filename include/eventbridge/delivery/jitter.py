"""The jitter of retries, sampled once for each request: deliveries that failed together are due together."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from eventbridge.model.outcome import Response


class JitterSample(NamedTuple):
    """The time at which a response was decided on, and a random number in [0, 1) for its jitter."""

    at: datetime
    draw: float


class RetryJitter:
    """Samples the jitter for the responses of one run.

    Each item of a batch request has its own response with the times of their request. Without a common sample, a
    rejected batch request of 100 would be retried as 100 requests, to a target that is already in trouble.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._request: tuple[datetime, float] | None = None
        self._last: JitterSample | None = None

    def sample(self, response: Response) -> JitterSample:
        """Return the sample of the request that a response belongs to: the last request's, or a new one."""
        request = (response.started_at, response.duration_ms)
        if self._last is None or request != self._request:
            self._request, self._last = request, JitterSample(self._clock(), random.random())
        return self._last
