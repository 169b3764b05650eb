"""The stop of one push: set by the push itself, or together with the stop of all pushes."""

from __future__ import annotations

import math

from eventbridge.runtime.stop import Stop


class PushStop(Stop):
    """A stop that is also set once another one is; setting this one does not set the other."""

    def __init__(self, of_all: Stop) -> None:
        super().__init__()
        self._of_all = of_all

    def is_set(self) -> bool:
        """Return whether this push must stop."""
        return super().is_set() or self._of_all.is_set()

    def is_over(self, within_seconds: float = math.inf) -> bool:
        """Return whether this push no longer waits for responses, by its own stop or that of all pushes."""
        return super().is_over(within_seconds) or self._of_all.is_over(within_seconds)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `timeout` seconds, or until all pushes must stop; return whether this push must stop.

        A wait that has begun does not end when only this push is stopped, so it must be short.
        """
        if not self.is_set():
            self._of_all.wait(timeout)
        return self.is_set()
