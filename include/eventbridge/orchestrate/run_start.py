"""When to start a run: pure decisions over what is available, for the watcher."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: Two starts of one subject are at least this far apart.
SHORTEST = timedelta(seconds=1)

#: A run that may start beside one at work (retries: a slow target must not hold up the others) comes this much later.
#: A run costs seconds of CPU whatever it delivers: what falls due meanwhile goes in one.
BESIDE = timedelta(seconds=5)

#: A start without a response (its DAG was paused, its run failed) is repeated after this.
AGAIN = timedelta(seconds=15)

#: A subject with unfinished work and nothing that waits gets a run after this: its run may have died.
UNFINISHED = timedelta(seconds=60)

#: The longest time between two starts of a subject whose runs change nothing: they need a person, and each costs tasks.
LONGEST = timedelta(minutes=10)


#: The mark of a start after which nothing was left to wait: whatever waits next, it gets a response.
RESPONDED = object()


@dataclass(frozen=True)
class Seen:
    """What one look found for one subject.

    `waiting`: there is something that no batch has taken up. `busy`: a batch is still being delivered.
    `unfinished`: something is begun and not ended, or pending.
    `mark` changes with every batch that takes something up, so that a responded start is known from a lost one.
    `progress` changes with every step of a run; None: a run that changes nothing is no reason to start runs less often.
    """

    waiting: bool
    busy: bool
    mark: Hashable
    beside: bool = False  # several runs of this subject may be at work
    unfinished: bool = False
    progress: Hashable = None


@dataclass(frozen=True)
class RunStart:
    """The last start of a run for one subject, and what was seen then.

    `repeats` counts the starts before it at the same progress, one after the other.
    """

    started_at: datetime
    mark: Hashable
    progress: Hashable = None
    repeats: int = 0


def needs_start(seen: Seen, last: RunStart | None, now: datetime) -> bool:
    """Return whether to start a run now: level-triggered, when something waits and the last start's batch is delivered.

    At most once a second, beside a run at work every 5 s. A start without a response is repeated after 15 s, and one
    for unfinished work after 60 s; as long as nothing changes, each repeat comes after twice the time, up to 10
    minutes.
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


def started(seen: Seen, last: RunStart | None, now: datetime) -> RunStart:
    """Return the start of a run now, which counts how often it was repeated."""
    repeats = last.repeats + 1 if last is not None and _is_unchanged(seen, last) else 0
    return RunStart(now, seen.mark, seen.progress, repeats)


def _repeat_after(first: timedelta, seen: Seen, last: RunStart) -> timedelta:
    doublings = min(last.repeats, 10) if _is_unchanged(seen, last) else 0
    return min(first * (1 << doublings), LONGEST)


def _is_unchanged(seen: Seen, last: RunStart) -> bool:
    return seen.progress is not None and seen.progress == last.progress
