"""The maximum value of a count argument, if the expression alone determines it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from eventbridge.transform.sql.tree import Node

#: The most that a call may make.
MAXIMUM_COUNT: Final = 1_000
#: Which argument says how many are made.
COUNTS: Final = {"array_insert": 1, "array_repeat": 1, "lpad": 1, "repeat": 1, "rpad": 1, "space": 0}


def made(call: Node) -> int:
    """Return how many a call makes at most that has passed `bounds`."""
    name = str(call.value)
    many = items(call.children) if name == "sequence" else most(call.children[COUNTS[name]], name)
    return max(1, many or 1)


def most_of(node: Node) -> int | None:
    """Return the maximum of a number, None if unknown."""
    return range_of(node)[1]


def range_of(node: Node) -> tuple[int | None, int | None]:
    """Return minimum and maximum of a number, each None if unknown."""
    number = node.whole()
    if number is not None:
        return number, number
    if node.kind != "call" or node.value not in ("least", "greatest"):
        return None, None
    lows, highs = zip(*(range_of(child) for child in node.children), strict=True)
    if node.value == "least":
        return _all(min, lows), _known(min, highs)
    return _known(max, lows), _all(max, highs)


def _known(choose: Callable[[list[int]], int], numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return choose(known) if known else None


def _all(choose: Callable[[list[int]], int], numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else _known(choose, numbers)


def most(count: Node, name: str) -> int | None:
    """Return the maximum of a count, None if unknown or not allowed."""
    low, high = range_of(count)
    if name == "array_insert":  # a position far below zero makes as much as one far above
        high = None if low is None or high is None else max(abs(low), abs(high))
    return high if high is not None and high <= MAXIMUM_COUNT else None


def items(arguments: Sequence[Node]) -> int | None:
    """Return the maximum number of items of a sequence, None if unknown."""
    (low, high), (other_low, other_high) = (range_of(each) for each in arguments[:2])
    if low is None or high is None or other_low is None or other_high is None:
        return None
    return max(other_high - low, high - other_low) + 1
