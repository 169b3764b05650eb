"""Ordered values as a line cut at the points that the rules name; ranges of it are found by stabbing.

n points cut a line into 2n + 1 intervals: below the first point, the point itself, between it and the next, and so
on. A range covers some of them in a row and lies in a segment tree, in at most two nodes a level. The ranges that
hold a value are those at the nodes on the way from the value's interval up to the root: the cost is that of the way
and of the ranges found, however many ranges there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import byte_at, double_at, int32_at, int64_at, put_int32, word_at
from eventbridge.matching.scan.numbers import compare, normal_form, simple_number


@compiled
def number_interval(tables: int, line: int, text: int, position: int, length: int, room: int) -> Any:
    """Return the interval in which a number lies, by exact decimal value.

    Most numbers have few digits, and so have the points: then the nearest doubles are as good as the decimals.
    `room` is for `length` digits.
    """
    first = int32_at(int64_at(tables, t.LINE_POINTS_FIRST), line)
    stop = int32_at(int64_at(tables, t.LINE_POINTS_FIRST), line + 1)
    simple, value = simple_number(text, position, length)
    if simple:
        doubles = int64_at(tables, t.POINT_DOUBLE)
        low, high = first, stop
        while low < high:
            middle = (low + high) >> 1
            if double_at(doubles, middle) < value:
                low = middle + 1
            else:
                high = middle
        if low == stop or double_at(doubles, low) != value:
            return 2 * (low - first)
        if byte_at(int64_at(tables, t.POINT_SIMPLE), low) != 0:
            return 2 * (low - first) + 1
    sign, power, count = normal_form(text, position, length, room)
    low, high = first, stop
    while low < high:
        middle = (low + high) >> 1
        order = compare(
            sign,
            power,
            room,
            count,
            int32_at(int64_at(tables, t.POINT_SIGN), middle),
            int64_at(int64_at(tables, t.POINT_POWER), middle),
            int64_at(tables, t.POINT_DIGITS),
            int32_at(int64_at(tables, t.POINT_START), middle),
            int32_at(int64_at(tables, t.POINT_COUNT), middle),
        )
        if order == 0:
            return 2 * (middle - first) + 1
        if order > 0:
            low = middle + 1
        else:
            high = middle
    return 2 * (low - first)


@compiled
def address_interval(tables: int, line: int, upper: Any, lower: Any) -> Any:
    """Return the interval in which an address of 128 bits lies."""
    first = int32_at(int64_at(tables, t.LINE_POINTS_FIRST), line)
    stop = int32_at(int64_at(tables, t.LINE_POINTS_FIRST), line + 1)
    uppers, lowers = int64_at(tables, t.POINT_HIGH), int64_at(tables, t.POINT_LOW)
    low, high = first, stop
    while low < high:
        middle = (low + high) >> 1
        point_upper, point_lower = word_at(uppers, middle), word_at(lowers, middle)
        if point_upper == upper and point_lower == lower:
            return 2 * (middle - first) + 1
        if point_upper < upper or (point_upper == upper and point_lower < lower):
            low = middle + 1
        else:
            high = middle
    return 2 * (low - first)


@compiled
def stab(tables: int, line: int, interval: int, atoms: int, count: int) -> Any:
    """Write the atoms of the ranges that hold an interval behind `count` others; return the new count."""
    firsts, items = int64_at(tables, t.SEGMENT_ATOMS_FIRST), int64_at(tables, t.SEGMENT_ATOMS)
    points = int64_at(tables, t.LINE_POINTS_FIRST)
    intervals = 2 * (int32_at(points, line + 1) - int32_at(points, line)) + 1
    first_node = int32_at(int64_at(tables, t.LINE_SEGMENTS_FIRST), line)
    node = interval + intervals
    while node > 0:
        begin = int32_at(firsts, first_node + node)
        for place in range(begin, int32_at(firsts, first_node + node + 1)):
            put_int32(atoms, count, int32_at(items, place))
            count += 1
        node >>= 1
    return count


@compiled
def cover(intervals: int, low: Any, high: Any, atom: Any, nodes: Any, atoms: Any) -> int:
    """Return how many nodes of a segment tree hold the given ranges, and write (node, atom) for each.

    `low` and `high` are the first and the last interval of each range. With empty `nodes` it only counts.
    """
    count = 0
    for index in range(low.shape[0]):
        left, right = low[index] + intervals, high[index] + intervals + 1
        while left < right:
            if left & 1:
                if nodes.shape[0] > 0:
                    nodes[count], atoms[count] = left, atom[index]
                count += 1
                left += 1
            if right & 1:
                right -= 1
                if nodes.shape[0] > 0:
                    nodes[count], atoms[count] = right, atom[index]
                count += 1
            left >>= 1
            right >>= 1
    return count


def segments(intervals: int, low: list[int], high: list[int], atom: list[int]) -> tuple[Any, Any]:
    """Return a segment tree of ranges: where each node's atoms begin (2 x intervals + 1 numbers), and the atoms."""
    lows, highs, named = np.array(low, np.int64), np.array(high, np.int64), np.array(atom, np.int32)
    none = np.zeros(0, np.int64)
    count = cover(intervals, lows, highs, named, none, np.zeros(0, np.int32))
    nodes, atoms = np.empty(count, np.int64), np.empty(count, np.int32)
    if count:
        cover(intervals, lows, highs, named, nodes, atoms)
    order = np.argsort(nodes, kind="stable")
    firsts = np.searchsorted(nodes[order], np.arange(2 * intervals + 1)).astype(np.int32)
    return firsts, atoms[order]
