"""Decides when the watcher starts a run, with pure functions over the state of a subject."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: The shortest time between two starts of one subject.
SHORTEST = timedelta(seconds=1)

#: The shortest time between two starts if a run may start while another is active, as for retries, where a slow target
#: must not delay the others. Each run costs seconds of CPU, so one run takes everything that falls due in this time.
BESIDE = timedelta(seconds=5)

#: A start that had no effect (the DAG was paused, the run failed) is repeated after this time.
AGAIN = timedelta(seconds=15)

#: A subject with unfinished work, for which nothing waits, gets a run after this time, because its previous run may
#: have died.
UNFINISHED = timedelta(seconds=60)

#: The longest time between two starts of a subject whose runs change nothing, because only an operator can help and
#: each run costs tasks.
LONGEST = timedelta(minutes=10)

#: The mark of a start that left nothing waiting, so that the next work that waits gets a run without delay.
HANDLED = object()


@dataclass(frozen=True)
class SubjectState:
    """The state of one subject in one poll.

    `waiting` is whether there is work that no batch has taken, `busy` whether a batch is still being delivered.
    `unfinished` is whether started work has not ended, or deliveries are pending.
    `mark` changes with every batch that takes work, which distinguishes an effective start from a lost one.
    `progress` changes with every step of a run. If it is None, starts are not delayed even if runs change nothing.
    """

    waiting: bool
    busy: bool
    mark: Hashable
    beside: bool = False  # several runs of this subject may be active
    unfinished: bool = False
    progress: Hashable = None


@dataclass(frozen=True)
class RunStart:
    """The last start of a run for one subject, and its state then.

    `repeats` counts the consecutive earlier starts at the same progress.
    """

    started_at: datetime
    mark: Hashable
    progress: Hashable = None
    repeats: int = 0


def needs_start(seen: SubjectState, last: RunStart | None, now: datetime) -> bool:
    """Return whether to start a run now, usually because work waits and the batch of the last start is delivered.

    The decision is level-triggered. A run starts at most once a second, or every 5 s while another run is active. A
    start without an effect is repeated after 15 s, and one for unfinished work after 60 s. While nothing changes, the
    delay doubles with each repeat, up to 10 minutes.
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
    """Return the start of a run now, with the number of its repeats."""
    repeats = last.repeats + 1 if last is not None and _is_unchanged(seen, last) else 0
    return RunStart(now, seen.mark, seen.progress, repeats)


def _repeat_after(first: timedelta, seen: SubjectState, last: RunStart) -> timedelta:
    doublings = min(last.repeats, 10) if _is_unchanged(seen, last) else 0
    return min(first * (1 << doublings), LONGEST)


def _is_unchanged(seen: SubjectState, last: RunStart) -> bool:
    return seen.progress is not None and seen.progress == last.progress
