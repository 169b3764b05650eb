"""Decides when the watcher starts a run, with pure functions of a subject's state."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: The shortest time between two starts of one subject.
SHORTEST = timedelta(seconds=1)

#: The shortest time between two starts while a batch of the subject is still being delivered. Only retries start such
#: runs, so that a slow target does not delay the others. Each run takes seconds of CPU time, so one run takes
#: everything that falls due in this time.
BESIDE = timedelta(seconds=5)

#: A start that had no effect, because the DAG was paused or the run failed, is repeated after this time.
AGAIN = timedelta(seconds=15)

#: A subject with unfinished work but no waiting work gets a run after this time, because its previous run may have
#: died.
UNFINISHED = timedelta(seconds=60)

#: The longest time between two starts for a subject whose runs change nothing. Only an operator can help it, and each
#: run takes task slots.
LONGEST = timedelta(minutes=10)

#: The mark of a start after which no work was waiting, so that a run for the next work starts without delay.
HANDLED = object()


@dataclass(frozen=True)
class SubjectState:
    """The state of one subject in one poll.

    `waiting` means that there is work that no batch has taken. `busy` means that a batch is still being delivered.
    `unfinished` means that started work has not ended, or that deliveries are pending. `mark` changes with every batch
    that takes work, so it distinguishes a start that had an effect from one that was lost. `progress` changes with
    every step of a run. If it is None, starts are not delayed even if the runs change nothing.
    """

    waiting: bool
    busy: bool
    mark: Hashable
    beside: bool = False  # a run of this subject may start while another one is active
    unfinished: bool = False
    progress: Hashable = None


@dataclass(frozen=True)
class RunStart:
    """The last start of a run for one subject, with the subject's mark and progress at that time.

    `repeats` is the number of consecutive earlier starts at the same progress.
    """

    started_at: datetime
    mark: Hashable
    progress: Hashable = None
    repeats: int = 0


def needs_start(seen: SubjectState, last: RunStart | None, now: datetime) -> bool:
    """Return whether to start a run now, usually because work is waiting and the previous batch has been delivered.

    The decision depends on the current state, not on what has changed. A run starts at most once a second, or every 5 s
    while a batch is being delivered. A start without an effect is repeated after 15 s, and one for unfinished work
    after 60 s. While nothing changes, the delay doubles with each repeat, up to 10 minutes.
    """
    if not seen.waiting:
        return seen.unfinished and last is not None and now - last.started_at >= _repeat_after(UNFINISHED, seen, last)
    if last is None:
        return not seen.busy or seen.beside
    silence = now - last.started_at
    if silence >= _repeat_after(AGAIN, seen, last):
        return True
    if seen.busy:
        return seen.beside and seen.mark != last.mark and silence >= BESIDE
    return seen.mark != last.mark and silence >= SHORTEST


def next_start(seen: SubjectState, last: RunStart | None, now: datetime) -> RunStart:
    """Return the record of a run that starts now."""
    repeats = last.repeats + 1 if last is not None and _is_unchanged(seen, last) else 0
    return RunStart(now, seen.mark, seen.progress, repeats)


def _repeat_after(first: timedelta, seen: SubjectState, last: RunStart) -> timedelta:
    doublings = min(last.repeats, 10) if _is_unchanged(seen, last) else 0
    return min(first * (1 << doublings), LONGEST)


def _is_unchanged(seen: SubjectState, last: RunStart) -> bool:
    return seen.progress is not None and seen.progress == last.progress
