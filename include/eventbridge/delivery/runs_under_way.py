"""Tracks which runs of a push are in progress, so that a poll costs by their number and not by that of all targets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventbridge.delivery.run import TargetRun


class BegunRuns:
    """The runs of a push in the order in which they begin; each thread adds its own."""

    def __init__(self, runs: Sequence[TargetRun]) -> None:
        self._begun: list[TargetRun] = []
        for run in runs:
            run.progress.on_begin = partial(self._begun.append, run)

    def since(self, number: int) -> list[TargetRun]:
        """Return the runs that began after the first `number`."""
        return self._begun[number:]


class RunsUnderWay:
    """The runs that have begun and not ended, for one caller that polls them."""

    def __init__(self, begun: BegunRuns) -> None:
        self._begun = begun
        self._seen = 0
        self._left: list[TargetRun] = []

    def poll(self) -> list[TargetRun]:
        """Return the runs in progress since the last poll, including those that have ended since."""
        fresh = self._begun.since(self._seen)
        self._seen += len(fresh)
        found = [*self._left, *fresh]
        self._left = [run for run in found if run.progress.ended_at is None]
        return found
