"""Limits the time that one attempt at `buffer` or `route` may take (the prepare budget). The next attempt continues."""

from __future__ import annotations

from datetime import timedelta

from eventbridge.errors import InfrastructureError
from eventbridge.runtime.runtime import Runtime


class PrepareBudget:
    """Decides when a stage must stop.

    A stage never has to stop before it has recorded something, so that every attempt makes progress.
    """

    def __init__(self, runtime: Runtime, stage: str, batch_id: str) -> None:
        self._clock = runtime.clock
        self._seconds = runtime.settings.prepare_timeout
        self._until = runtime.clock() + timedelta(seconds=self._seconds)
        self._stage = stage
        self._batch_id = batch_id
        self._recorded = 0

    def progressed(self) -> None:
        """Note that the stage has recorded a part."""
        self._recorded += 1

    def check(self) -> None:
        """Raise InfrastructureError if the budget is spent and something was recorded.

        Call it only if there is more work.
        """
        if self._recorded and self._clock() >= self._until:
            raise InfrastructureError(
                f"{self._stage} of batch {self._batch_id} spent its prepare budget of {self._seconds:g} s "
                f"(EVENTBRIDGE_PREPARE_TIMEOUT); parts recorded: {self._recorded}. "
                "Recorded parts are kept; the next attempt continues from there."
            )
