"""The targets of a batch side by side: who waits for whom, how long, and who is not waited for any longer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Protocol

from eventbridge.hold_up import done_at, is_cut_off, winds_down
from eventbridge.ledger.records import Batch
from eventbridge.stages.items import TargetReport
from eventbridge.stages.presence import Presence
from eventbridge.stages.workplace import Workplace

#: How often it is looked whether somebody is waited for too long.
_LOOK_SECONDS = 0.25


class Run(Protocol):
    """What is wanted of a target's run."""

    report: TargetReport
    presence: Presence


class Company:
    """The runs of one push, and the other chunks of their batch as the ledger last told.

    Only those of a normal batch wait for one another: in the slow lane everybody may take the time that it needs.
    """

    def __init__(self, work: Workplace, batch: Batch, chunk_id: int, runs: Sequence[Run], until: datetime) -> None:
        self._work = work
        self._batch = batch
        self._chunk_id = chunk_id
        self._runs = runs
        self._until = until
        self._waits = batch.kind == "normal"
        self._began_at = work.clock()
        self._looked_at = time.monotonic()
        self._elsewhere: dict[int, datetime | None] = {}
        self._targets_of = work.ledger.chunk_targets(batch.batch_id) if self._waits else {}
        for run in runs if self._waits else ():
            run.presence.may_wait = partial(self._may_wait, run)

    def ask(self) -> None:
        """Ask the ledger how far the other chunks of the batch are."""
        if self._waits:
            ends = self._work.ledger.chunk_ends(self._batch.batch_id)
            others = self._targets_of.keys() & ends.keys() - {self._chunk_id}
            self._elsewhere = {number: ends[number] for number in others}

    def look(self) -> None:
        """Cut off those for whom the others have waited long enough, or whose answers would come too late."""
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        now = self._work.clock()
        for run in self._runs:
            presence = run.presence
            if presence.began_at is None or presence.ended_at is not None or presence.cut:
                continue
            typical = presence.typical
            if winds_down((self._until - now).total_seconds() - _LOOK_SECONDS, typical):
                presence.cut = "budget"
            elif self._waits and self._is_waited_for(run, now, typical):
                presence.cut = "others"

    def wake(self) -> None:
        """Let those that wait for a retry see whether they still may: somebody is done, or the push is to stop."""
        for run in self._runs:
            run.presence.wake()

    def measure(self) -> None:
        """Note of each run that has ended how long it took, and how much of that the others waited for it."""
        self.ask()
        for run in self._runs:
            run.presence.measure(self._others_done_at(run) if self._waits else None)

    def _may_wait(self, run: Run) -> bool:
        """Return whether it costs nobody anything if a run waits: there are others at work, or no others at all.

        Only those of this push count as at work: another push may itself only wait, for this one.
        """
        if all(targets == {_place(run)} for targets in self._targets_of.values()):
            return True
        return any(each.presence.at_work for each in self._runs if each is not run)

    def _is_waited_for(self, run: Run, now: datetime, typical: float | None) -> bool:
        done = self._others_done_at(run)
        if done is None:
            return False
        return is_cut_off((now - done).total_seconds(), (done - self._began_at).total_seconds(), typical)

    def _others_done_at(self, run: Run) -> datetime | None:
        """Return when the others were done: targets of this push, and pushes that have other targets too."""
        place = _place(run)
        ends: dict[tuple[str, str], list[datetime | None]] = defaultdict(list)
        for each in self._runs:
            if _place(each) != place:
                ends[_place(each)].append(each.presence.ended_at)
        elsewhere = [end for number, end in self._elsewhere.items() if self._targets_of[number] != {place}]
        return done_at([*map(_last, ends.values()), *elsewhere])


def _place(run: Run) -> tuple[str, str]:
    return run.report.rule, run.report.target


def _last(ends: Sequence[datetime | None]) -> datetime | None:
    """Return when the last of them ended, None if one has not."""
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None
