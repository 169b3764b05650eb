"""What a target costs the others of its batch: how long that waits for it alone, and no longer. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import NamedTuple

#: A wait that is shorter is not counted: threads that end together do not end at the same instant.
COUNTED_SECONDS = 0.5
#: Answers that take so long at the median are what the batch waits for; shorter ones: the number of its deliveries is.
SLOW_ANSWER_SECONDS = 0.1
#: So long, and as long again as the others took, a batch waits for its last target before it leaves the rest.
CUT_OFF_SECONDS = 2.0
#: An answer may take so many times as long as its target's median.
_LONGER = 1.25
#: So long, and as long again as the others took, a batch waits for answers that do not come, once the others are done.
PATIENCE_SECONDS = 1.0
#: A target is silent if no answer came for so many times what one usually takes.
_SILENT_TIMES = 4


class Stay(NamedTuple):
    """How long a push was busy with one target, in seconds.

    `beyond`: after the others of its batch were done, 0 if they are not or there are none; `tail`: from the moment that
    it had sent everything once; `typical`: the median of what its answers took, None without any.
    """

    beyond: float
    tail: float
    typical: float | None

    @property
    def hold_up(self) -> float:
        """Seconds that the batch waited for this target alone and because of it: not because it has many deliveries."""
        slow = self.typical is None or self.typical >= SLOW_ANSWER_SECONDS
        seconds = self.beyond if slow else min(self.beyond, self.tail)
        return seconds if seconds >= COUNTED_SECONDS else 0.0

    @property
    def is_quick(self) -> bool:
        """Whether a batch would not have to wait for such answers, whatever else is in it."""
        return self.typical is not None and max(self.typical, self.tail) < COUNTED_SECONDS


class Ends:
    """When each of a batch was done, by whose it is: a time, or None as long as it is at work.

    To ask for one costs a search in all of them, not a look at each: a chunk may have thousands of targets.
    """

    def __init__(self, ends: Iterable[tuple[Hashable, datetime | None]]) -> None:
        self._of: dict[Hashable, list[datetime | None]] = defaultdict(list)
        for owner, end in ends:
            self._of[owner].append(end)
        self._count = sum(map(len, self._of.values()))
        self._ended = _known(end for of_one in self._of.values() for end in of_one)

    def others_done_at(self, owner: Hashable) -> datetime | None:
        """Return when half of those were done that are not `owner`'s; None: not yet, or there are none."""
        own = self._of.get(owner, [])
        own_ended = _known(own)
        half = (self._count - len(own) + 1) // 2
        if not 0 < half <= len(self._ended) - len(own_ended):
            return None
        place = half - 1
        for end in own_ended:  # each that lies before the place moves it on by one
            place += bisect_left(self._ended, end) <= place
        return self._ended[place]


def _known(ends: Iterable[datetime | None]) -> list[datetime]:
    return sorted(end for end in ends if end is not None)


def is_cut_off(beyond: float, others: float, typical: float | None) -> bool:
    """Return whether nothing more may be started of a target at work `beyond` the others, which took `others` seconds.

    One that answers quickly is not: it has many deliveries.
    """
    if typical is not None and typical < SLOW_ANSWER_SECONDS:
        return False
    return beyond >= max(CUT_OFF_SECONDS, others)


def is_silent(seconds: float, usual: float | None) -> bool:
    """Return whether a target that answered nothing for so many seconds is not about to; `usual` None: nobody knows.

    `usual` is what its answers take. One that is slow is not silent: it would get again what it is working on.
    """
    return usual is not None and seconds >= max(PATIENCE_SECONDS, _SILENT_TIMES * usual)


def is_left_behind(beyond: float, others: float) -> bool:
    """Return whether a batch no longer waits for the answers of a silent target `beyond` the others.

    Those took `others` seconds.
    """
    return beyond >= max(PATIENCE_SECONDS, others)


def winds_down(left: float, typical: float | None) -> bool:
    """Return whether an answer to what is sent now would come after the `left` seconds of a budget.

    What is in flight then is broken off, and sent again. Not so where answers are quick: there are few in flight.
    """
    return typical is not None and typical >= SLOW_ANSWER_SECONDS and left <= _LONGER * typical
