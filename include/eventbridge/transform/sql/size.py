"""The largest size of a value, as polynomials in the size of its event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

_ENOUGH: Final = 1 << 62
#: The most characters of a number, a truth value, a date, a timestamp, or the difference of two timestamps.
NUMBER: Final = 56
#: The most characters that stand around a member of an array, map or struct when it is written: quotes, comma, null.
AROUND: Final = 8


class Growth(NamedTuple):
    """The polynomial `fixed + linear*n + square*n*n`.

    `beyond` is above 0 if the value may grow as the cube of n, or faster.
    """

    fixed: int = 0
    linear: int = 0
    square: int = 0
    beyond: int = 0

    def plus(self, other: Growth) -> Growth:
        """Return the sum of two polynomials."""
        return Growth(*(min(mine + theirs, _ENOUGH) for mine, theirs in zip(self, other, strict=True)))

    def times(self, other: Growth) -> Growth:
        """Return the product of two polynomials."""
        found = [0, 0, 0, 0]
        for power, mine in enumerate(self):
            for more, theirs in enumerate(other):
                at = min(power + more, 3)
                found[at] = min(found[at] + mine * theirs, _ENOUGH)
        return Growth(*found)

    def at(self, n: int) -> int:
        """Return the value for an event of the size n; for a polynomial whose `beyond` is 0."""
        return self.fixed + self.linear * n + self.square * n * n


ONE: Final = Growth(1)


class Size(NamedTuple):
    """How large a value may be.

    `text` counts bytes of text in UTF-8 and the names of fields; `numbers` counts values of a fixed size, which take
    NUMBER characters when they are written; `items` counts the members of arrays, maps and structs at every depth.
    """

    text: Growth = Growth()
    numbers: Growth = Growth()
    items: Growth = Growth()

    def plus(self, other: Size) -> Size:
        """Return the size of two values side by side."""
        return Size(*(mine.plus(theirs) for mine, theirs in zip(self, other, strict=True)))

    def times(self, many: Growth) -> Size:
        """Return the size of several such values."""
        return Size(*(each.times(many) for each in self))

    def written(self) -> Growth:
        """Return how many bytes the value takes when it is written as text."""
        return self.text.plus(self.numbers.times(Growth(NUMBER))).plus(self.items.times(Growth(AROUND)))


def total(sizes: Iterable[Size]) -> Size:
    """Return the size of values side by side."""
    found = Size()
    for each in sizes:
        found = found.plus(each)
    return found


def text(length: Growth | int) -> Size:
    """Return the size of a text."""
    return Size(Growth(length) if isinstance(length, int) else length)
