"""When to ring for a run: pure decisions over what is available, for the doorbell."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta

#: Two bells of one subject are at least this far apart.
SHORTEST = timedelta(seconds=1)

#: A run that may start beside one at work (retries: a slow target must not hold up the others) comes this much later.
#: A run costs seconds of CPU whatever it delivers: what falls due meanwhile goes in one.
BESIDE = timedelta(seconds=5)

#: A bell that nobody answered (its DAG was paused, its run failed) is rung again after this.
AGAIN = timedelta(seconds=15)


#: What is begun and not ended, or parked, is looked after so often though nothing waits: its run may have died.
UNFINISHED = timedelta(seconds=60)


#: The mark of a bell after which nothing was left to wait: whatever waits next, it is answered.
ANSWERED = object()


@dataclass(frozen=True)
class Seen:
    """What one look found for one subject.

    `waiting`: there is something that no batch has taken up. `busy`: a batch is still being delivered.
    `unfinished`: something is begun and not ended, or parked.
    `mark` changes with every batch that takes something up, so that an answered bell is known from a lost one.
    """

    waiting: bool
    busy: bool
    mark: Hashable
    beside: bool = False  # several runs of this subject may be at work
    unfinished: bool = False


@dataclass(frozen=True)
class Bell:
    """The last bell of one subject and what was seen when it rang."""

    rung_at: datetime
    mark: Hashable


def rings(seen: Seen, last: Bell | None, now: datetime) -> bool:
    """Return whether to ring now: level-triggered, when something waits and the last bell's batch is delivered.

    At most once a second, beside a run at work every 5 s; a bell without an answer is repeated every 15 s. For what is
    unfinished it rings once a minute.
    """
    if not seen.waiting:
        return seen.unfinished and last is not None and now - last.rung_at >= UNFINISHED
    if last is None:
        return not seen.busy or seen.beside
    silence = now - last.rung_at
    if silence >= AGAIN:
        return True
    if seen.busy:
        return seen.beside and seen.mark != last.mark and silence >= BESIDE
    return seen.mark != last.mark and silence >= SHORTEST
