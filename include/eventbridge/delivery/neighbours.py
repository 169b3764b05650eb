"""Lets a run wait for a retry or a token only if that delays no other target of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventbridge.delivery.run import TargetRun
from eventbridge.delivery.runs_under_way import BegunRuns, RunsUnderWay
from eventbridge.model.batch import Batch
from eventbridge.runtime.runtime import Runtime


class Neighbours:
    """The other targets of a push of new deliveries: a run may wait only where no target waits for it.

    In the slow lane each run may wait for as long as its budget lasts.
    """

    def __init__(self, runtime: Runtime, batch: Batch, runs: Sequence[TargetRun]) -> None:
        self.begun = BegunRuns(runs)
        self._under_way = RunsUnderWay(self.begun)
        self._runs = runs
        self._targets_of = runtime.ledger.chunk_targets(batch.batch_id) if batch.kind == "normal" else {}
        for run in runs if batch.kind == "normal" else ():
            run.progress.may_wait = partial(self._may_wait, run)

    def wake(self) -> None:
        """Wake the runs that wait, to check whether they still may: another run has ended, or the push must stop."""
        for run in self._under_way.poll():
            run.progress.wake()

    def _may_wait(self, run: TargetRun) -> bool:
        """Return whether another target of this push is at work, or the batch has no other target.

        Another push does not count: it may be waiting as well, and the batch would wait for both.
        """
        own = (run.report.rule, run.report.target)
        if all(targets == {own} for targets in self._targets_of.values()):
            return True
        return any(each.progress.is_at_work for each in reversed(self._runs) if each is not run)  # the last begin last
