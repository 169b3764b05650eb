"""Finds the ranges of numbers or addresses that contain a value, with one segment tree per line.

A line is an ordered set of values, cut at the n points that the rules name into 2n + 1 intervals: below the first
point, the point itself, between it and the next, and so on. A range covers consecutive intervals, and a segment tree
stores it in at most two nodes per level. The ranges that contain a value are those at the nodes between the value's
interval and the root. So the cost depends on the depth of the tree and on the number of ranges found, not on
the number of all ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from eventbridge.event.json_document import Number
from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.addresses import MAPPED
from eventbridge.matching.pattern.address import Block
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import address_of, byte_at, double_at, int32_at, int64_at, put_int32, word_at
from eventbridge.matching.scan.numbers import NEAR, compare, normal_form, simple_number


@compiled
def number_interval(tables: int, line: int, text: int, position: int, length: int, room: int) -> Any:
    """Return the interval that contains a number, by exact decimal value.

    Most numbers and points have few digits: then comparing the nearest doubles is exact and faster. `room` is the
    address of memory for `length` digits.
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
    """Return the interval that contains an address of 128 bits."""
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
    """Append the atoms of the ranges that contain an interval to the `count` atoms before; return the new count."""
    firsts, items = int64_at(tables, t.SEGMENT_ATOMS_FIRST), int64_at(tables, t.SEGMENT_ATOMS)
    points = int64_at(tables, t.LINE_POINTS_FIRST)
    intervals = 2 * (int32_at(points, line + 1) - int32_at(points, line)) + 1
    first_node = int32_at(int64_at(tables, t.LINE_SEGMENTS_FIRST), line)
    node = interval + intervals
    while node > 0:
        begin = int32_at(firsts, first_node + node)
        for position in range(begin, int32_at(firsts, first_node + node + 1)):
            put_int32(atoms, count, int32_at(items, position))
            count += 1
        node >>= 1
    return count


@compiled
def cover(intervals: int, low: Any, high: Any, atom: Any, nodes: Any, atoms: Any) -> int:
    """Write (node, atom) for each node of a segment tree that stores one of the given ranges; return their number.

    `low` and `high` are the first and the last interval of each range. If `nodes` is empty, the nodes are only counted.
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
    """Return the segment tree of ranges: where each node's atoms begin (2 x intervals + 1 numbers), and the atoms."""
    lows, highs, named = np.array(low, np.int64), np.array(high, np.int64), np.array(atom, np.int32)
    none = np.zeros(0, np.int64)
    count = cover(intervals, lows, highs, named, none, np.zeros(0, np.int32))
    nodes, atoms = np.empty(count, np.int64), np.empty(count, np.int32)
    if count:
        cover(intervals, lows, highs, named, nodes, atoms)
    order = np.argsort(nodes, kind="stable")
    firsts = np.searchsorted(nodes[order], np.arange(2 * intervals + 1)).astype(np.int32)
    return firsts, atoms[order]


_ACCEPTED_INTERVALS: Final = {">": (2, 0), ">=": (1, 0), "<": (0, 0), "<=": (0, 1), "=": (1, 1)}
"""The first and the last interval that a comparison accepts, counted from the one below its point.

A first interval of 0 means that there is no lower bound. The last interval of `>` and `>=` is ignored, as they have no
upper bound.
"""


Bounds: TypeAlias = tuple[tuple[str, Number], ...]


def put_lines(
    tables: t.Tables,
    paths: int,
    numbers: Mapping[int, dict[int, Bounds]],
    blocks: Mapping[int, dict[int, Block]],
) -> None:
    """Build the tables of lines, from the bounds of numbers and the blocks of addresses, each by path and atom."""
    lines = _Lines()
    of_numbers = np.full(paths + 1, -1, np.int32)
    of_addresses = np.full(paths + 1, -1, np.int32)
    for path, ranges in numbers.items():
        of_numbers[path] = lines.add_numbers(ranges)
    for path, listed in blocks.items():
        of_addresses[path] = lines.add_blocks(listed)
    tables.put(t.PATH_NUMBERS, of_numbers)
    tables.put(t.PATH_ADDRESSES, of_addresses)
    lines.put(tables)


_Point: TypeAlias = tuple[float, bool, int, int, bytes, int]
"""A point: its nearest double, whether its text is simple (see `simple_number`), sign, power, digits, and address."""

#: `Number.order` is a tuple, so sorting by it compares without a call of Python code.
_number_order: Final = attrgetter("order")

#: The maximum number of cached points; a changed rule set shares most points with the one before.
_MAX_CACHED_POINTS: Final = 16_384


@lru_cache(_MAX_CACHED_POINTS)
def _point_of(text: str) -> _Point:
    sign, power, digits = normal_form_of(text)
    simple, _ = _simple_number_of(text)
    return float(text), simple, sign, power, digits, 0


class _Lines:
    """The points and the segment trees of all lines."""

    def __init__(self) -> None:
        self.points: list[_Point] = []
        self.points_first = [0]
        self.firsts: list[npt.NDArray[np.int32]] = []
        self.atoms: list[npt.NDArray[np.int32]] = []
        self.segments_first = [0]
        self.atom_count = 0

    def add_numbers(self, ranges: dict[int, Bounds]) -> int:
        points = sorted({number for bounds in ranges.values() for _, number in bounds}, key=_number_order)
        rank = {number: index for index, number in enumerate(points)}
        last = 2 * len(points)
        low, high, atoms = [], [], []
        for atom, bounds in ranges.items():
            first, final = 0, last
            for sign, number in bounds:
                position = 2 * rank[number]
                if sign == "!=":
                    low.append(0)
                    high.append(position)
                    atoms.append(atom)
                    first = position + 2
                else:
                    after, before = _ACCEPTED_INTERVALS[sign]
                    if after:
                        first = max(first, position + after)
                    if sign in ("<", "<=", "="):
                        final = min(final, position + before)
            low.append(first)
            high.append(final)
            atoms.append(atom)
        self.points += [_point_of(number.text) for number in points]
        return self._add(len(points), low, high, atoms)

    def add_blocks(self, blocks: dict[int, Block]) -> int:
        ranges = [(first, last, atom) for atom, block in blocks.items() for first, last in _address_ranges(block)]
        points = sorted({end for first, last, _ in ranges for end in (first, last)})
        rank = {point: index for index, point in enumerate(points)}
        self.points += [(0.0, True, 0, 0, b"", point) for point in points]
        low = [2 * rank[first] + 1 for first, _, _ in ranges]
        high = [2 * rank[last] + 1 for _, last, _ in ranges]
        return self._add(len(points), low, high, [atom for _, _, atom in ranges])

    def _add(self, points: int, low: list[int], high: list[int], atom: list[int]) -> int:
        firsts, atoms = segments(2 * points + 1, low, high, atom)
        self.points_first.append(self.points_first[-1] + points)
        self.firsts.append(firsts + self.atom_count)
        self.segments_first.append(self.segments_first[-1] + len(firsts))
        self.atoms.append(atoms)
        self.atom_count += len(atoms)
        return len(self.points_first) - 2

    def put(self, tables: t.Tables) -> None:
        digits = [point[4] for point in self.points]
        counts = np.array([len(one) for one in digits], np.int32)
        tables.put(t.LINE_POINTS_FIRST, np.array(self.points_first, np.int32))
        tables.put(t.POINT_DOUBLE, np.array([point[0] for point in self.points], np.float64))
        tables.put(t.POINT_SIMPLE, np.array([point[1] for point in self.points], np.uint8))
        tables.put(t.POINT_SIGN, np.array([point[2] for point in self.points], np.int32))
        tables.put(t.POINT_POWER, np.array([point[3] for point in self.points], np.int64))
        tables.put(t.POINT_START, (np.cumsum(counts) - counts).astype(np.int32))
        tables.put(t.POINT_COUNT, counts)
        tables.put(t.POINT_DIGITS, np.frombuffer(b"".join(digits) + bytes(8), np.uint8))
        tables.put(t.POINT_HIGH, np.array([point[5] >> 64 for point in self.points], np.uint64))
        tables.put(t.POINT_LOW, np.array([point[5] & (2**64 - 1) for point in self.points], np.uint64))
        tables.put(t.LINE_SEGMENTS_FIRST, np.array(self.segments_first, np.int32))
        closing = np.array([self.atom_count], np.int32)
        tables.put(t.SEGMENT_ATOMS_FIRST, np.concatenate([*self.firsts, closing]))
        tables.put(t.SEGMENT_ATOMS, np.concatenate([*self.atoms, np.zeros(1, np.int32)]))


def _address_ranges(block: Block) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of a block's addresses; an IPv6 block omits the addresses that count as IPv4."""
    host_bits = block.width - block.mask
    first, last = block.prefix << host_bits, ((block.prefix + 1) << host_bits) - 1
    if block.width == 32:
        return [(first + MAPPED, last + MAPPED)]
    mapped_last = MAPPED + (1 << 32) - 1
    if last < MAPPED or first > mapped_last:
        return [(first, last)]
    return [part for part in ((first, MAPPED - 1), (mapped_last + 1, last)) if part[0] <= part[1]]


def normal_form_of(text: str) -> tuple[int, int, bytes]:
    """Return (sign, power, digits) of a JSON number; see `eventbridge.matching.scan.numbers.normal_form`."""
    encoded = np.frombuffer(text.encode() + bytes(8), np.uint8)
    digits = np.zeros(len(text) + 8, np.uint8)
    sign, power, count = normal_form(address_of(encoded), 0, len(text), address_of(digits))
    return sign, power, digits[:count].tobytes()


def is_far(form: tuple[int, int, bytes]) -> bool:
    """Return whether a number in normal form is so far from 0 that `compare` may be wrong for two such numbers."""
    return abs(form[1]) > NEAR


def _simple_number_of(text: str) -> tuple[bool, float]:
    encoded = np.frombuffer(text.encode() + bytes(8), np.uint8)
    found: tuple[bool, float] = simple_number(address_of(encoded), 0, len(text))
    return found
