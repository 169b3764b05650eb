"""The targets of a batch side by side: who waits for whom, how long, and who is not waited for any longer."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from datetime import datetime
from functools import partial

from eventbridge.decision.head_of_line import Ends, is_cut_off, is_left_behind, is_silent, winds_down
from eventbridge.model.batch import Batch
from eventbridge.stages.push.run import TargetRun
from eventbridge.stages.push.under_way import Begun, UnderWay
from eventbridge.stages.push.usual_answers import longest_answer
from eventbridge.stages.runtime.runtime import Runtime

#: How often it is looked whether somebody is waited for too long.
_LOOK_SECONDS = 0.25


class Company:
    """The runs of one push, and the other chunks of their batch as the ledger last told.

    Only those of a normal batch wait for one another: in the slow lane everybody may take the time that it needs.
    """

    def __init__(self, work: Runtime, batch: Batch, chunk_id: int, runs: Sequence[TargetRun], until: datetime) -> None:
        self._work = work
        self._batch = batch
        self._chunk_id = chunk_id
        self._runs = runs
        self.begun = Begun(runs)
        self._under_way = UnderWay(self.begun)
        self._places = len({_place(run) for run in runs})
        self._until = until
        self._waits = batch.kind == "normal"
        self._began_at = work.clock()
        self._looked_at = time.monotonic()
        self._elsewhere: dict[int, datetime | None] = {}
        self._half_done: Ends | None = None
        self._longest: dict[tuple[str, str], float | None] = {}
        self._targets_of = work.ledger.chunk_targets(batch.batch_id) if self._waits else {}
        for run in runs if self._waits else ():
            run.presence.may_wait = partial(self._may_wait, run)

    def ask(self) -> None:
        """Ask the ledger how far the other chunks of the batch are."""
        if self._waits:
            ends = self._work.ledger.chunk_ends(self._batch.batch_id)
            others = self._targets_of.keys() & ends.keys() - {self._chunk_id}
            elsewhere = {number: ends[number] for number in others}
            if elsewhere != self._elsewhere:
                self._elsewhere, self._half_done = elsewhere, None

    def look(self) -> None:
        """Cut off those for whom the others have waited long enough, or whose answers would come too late."""
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        now = self._work.clock()
        for run in self._under_way.look():
            presence = run.presence
            if presence.ended_at is not None or presence.cut == "answers":
                continue
            typical = presence.typical
            if self._is_left_behind(run, now, typical):
                run.leave_behind()
            elif presence.cut:
                continue
            elif winds_down((self._until - now).total_seconds() - _LOOK_SECONDS, typical):
                presence.cut = "budget"
            elif (
                self._half_may_be_done
                and self._may_be_waited_for(now, typical)
                and self._is_waited_for(self._others_done_at(_place(run)), now, typical)
            ):
                presence.cut = "others"

    def wake(self) -> None:
        """Let those that wait for a retry see whether they still may: somebody is done, or the push is to stop."""
        for run in self._under_way.look():
            run.presence.wake()

    def measure(self) -> None:
        """Note of each run that has ended how long it took, and how much of that the others waited for it."""
        self.ask()
        ends = self._ends()
        for run in self._runs:
            run.presence.measure(ends.others_done_at(_place(run)) if self._waits else None)

    def _may_wait(self, run: TargetRun) -> bool:
        """Return whether it costs nobody anything if a run waits: there are others at work, or no others at all.

        Only those of this push count as at work: another push may itself only wait, for this one.
        """
        if all(targets == {_place(run)} for targets in self._targets_of.values()):
            return True
        return any(each.presence.at_work for each in reversed(self._runs) if each is not run)  # the last begin last

    @property
    def _half_may_be_done(self) -> bool:
        """Whether `Ends` could say that half of the others are done: to make it takes a look at each."""
        return 2 * (self._under_way.ended + len(self._elsewhere)) >= self._places - 1

    def _is_left_behind(self, run: TargetRun, now: datetime, typical: float | None) -> bool:
        if run.settings.answers_within is None or not (self._waits and self._half_may_be_done and run.presence.at_work):
            return False
        silent = run.presence.silent_seconds
        if not is_silent(silent, 0.0 if typical is None else typical):  # the first question costs nothing
            return False
        done = self._others_done_at(_place(run))
        if done is None or not is_left_behind((now - done).total_seconds(), (done - self._began_at).total_seconds()):
            return False
        return is_silent(silent, self._usual(run, typical))

    def _usual(self, run: TargetRun, typical: float | None) -> float | None:
        """Return what its answers take, by this push or by those before it, in seconds."""
        if typical is not None:
            return typical
        place = _place(run)
        if place not in self._longest:
            self._longest[place] = longest_answer(self._work, *place)
        return self._longest[place]

    def _may_be_waited_for(self, now: datetime, typical: float | None) -> bool:
        return self._waits and is_cut_off((now - self._began_at).total_seconds(), 0.0, typical)

    def _is_waited_for(self, done: datetime | None, now: datetime, typical: float | None) -> bool:
        if done is None:
            return False
        return is_cut_off((now - done).total_seconds(), (done - self._began_at).total_seconds(), typical)

    def _others_done_at(self, place: tuple[str, str]) -> datetime | None:
        """Return when half of the others of a target at work were done; once they are, who ends later changes nothing.

        Asking each of thousands again, four times a second, took a quarter of a push of 10,000 files.
        """
        found = self._half_done.others_done_at(place) if self._half_done is not None else None
        if found is None:
            ends = self._ends()
            found = ends.others_done_at(place)
            self._half_done = ends if found is not None else None
        return found

    def _ends(self) -> Ends:
        """Return when each was done: targets of this push, and other pushes; one of a single target is that's own."""
        of_target: dict[tuple[str, str], list[datetime | None]] = defaultdict(list)
        for run in self._runs:
            of_target[_place(run)].append(run.presence.ended_at)
        here = [(place, _last(ends)) for place, ends in of_target.items()]
        return Ends([*here, *((self._owner(number), end) for number, end in self._elsewhere.items())])

    def _owner(self, chunk_id: int) -> Hashable:
        targets = self._targets_of[chunk_id]
        return next(iter(targets)) if len(targets) == 1 else chunk_id


def _place(run: TargetRun) -> tuple[str, str]:
    return run.report.rule, run.report.target


def _last(ends: Sequence[datetime | None]) -> datetime | None:
    """Return when the last of them ended, None if one has not."""
    known = [end for end in ends if end is not None]
    return max(known) if len(known) == len(ends) else None
