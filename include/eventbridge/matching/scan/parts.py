"""Locates the values at any number of definite paths in one pass over an event.

Unlike a leaf of a pattern, a part is one value, which may be an object or array, and arrays are not transparent. The
pass walks only into values on a path, and skips all others. It does not validate: call it only for an event that the
scanner or the strict parser has accepted.

A path with an index from the end of an array is cut there: the array is recorded as an additional part. After the pass,
the rest of such a path, its *tail*, is walked from the element with that index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventbridge.event.json_document import MAXIMUM_DEPTH
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.leaves import ESCAPED, FALSE, NULL, NUMBER, STRING, TRUE
from eventbridge.matching.scan.memory import (
    PADDING,
    address_of,
    byte_at,
    int32_at,
    int64_at,
    put_byte,
    put_int32,
    put_int64,
)
from eventbridge.matching.scan.numbers import number_end
from eventbridge.matching.scan.strings import has_escape, unescape
from eventbridge.matching.scan.texts import Texts
from eventbridge.matching.scan.tree import PathTree, Step, find_edge, find_index, path_tree, tree_tables
from eventbridge.matching.scan.values import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    quick_string_end,
    skip_space,
    string_end,
    value_end,
)

# The kinds of parts, besides those of leaves.
OBJECT: Final = 6
ARRAY: Final = 7
MISSING: Final = 8

_STACK: Final = MAXIMUM_DEPTH + 1
_NINE, _T, _F = ord("9"), ord("t"), ord("f")


class PartPaths(NamedTuple):
    """Prepared paths: part i is the value at path i; those from number `asked` on are the arrays of tails."""

    tree: PathTree
    tails: npt.NDArray[np.int64]  # per tail: the part of its array, the index of the element, the node of the element
    asked: int
    width: int


class Parts(NamedTuple):
    """The parts of events: row i, column p is part p of the i-th event; the range of a string excludes its quotes."""

    kind: npt.NDArray[np.uint8]
    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]


class PartTables(NamedTuple):
    """The addresses of the arrays of `Parts`, under the same names."""

    kind: int
    position: int
    length: int


class _WalkBuffers(NamedTuple):
    """The addresses of a walk's buffers."""

    stack: int
    visited: int
    key_text: int


def part_paths(paths: Sequence[Sequence[Step]]) -> PartPaths:
    """Return distinct paths prepared for a walk; the empty path is the whole event."""
    all_paths = {tuple(path): part for part, path in enumerate(paths)}
    asked = len(all_paths)
    cuts = [
        (path[:depth], step, path[: depth + 1])
        for path in list(all_paths)
        for depth, step in enumerate(path)
        if isinstance(step, int) and step < 0
    ]
    for array, _, _ in cuts:
        all_paths.setdefault(array, len(all_paths))
    tree = path_tree(list(all_paths))
    # Shorter cuts come first, because a tail may begin inside an earlier one.
    cuts = sorted(dict.fromkeys(cuts), key=lambda cut: len(cut[0]))
    tails = [(all_paths[array], step, _node_of(tree, path)) for array, step, path in cuts]
    return PartPaths(tree, np.array(tails, np.int64).reshape(len(tails), 3), asked, len(all_paths))


def _node_of(tree: PathTree, path: Sequence[Step]) -> int:
    tables, node = tree_tables(tree), 0
    for step in path:
        if isinstance(step, int):
            edge = find_index(tables, node, step)
        else:
            key = np.frombuffer(step.encode("utf-8", "surrogatepass") + bytes(8), np.uint8)
            edge = find_edge(tables, node, address_of(key), 0, len(key) - 8)
        node = int(tree.child[edge])
    return node


def find_parts(texts: Texts, rows: npt.NDArray[np.int64], paths: PartPaths) -> Parts:
    """Return the parts of the events whose numbers are in `rows`; their text must be strict JSON."""
    shape = (len(rows), paths.width)
    parts = Parts(np.full(shape, MISSING, np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.int32))
    if not len(rows):
        return parts
    tree, text = tree_tables(paths.tree), address_of(texts.buffer)
    # These buffers belong to Python code, because Numba frees its own arrays after their last use, even if their
    # addresses are still used.
    longest = int((texts.end[rows] - texts.start[rows]).max(initial=0))
    stack, key_text = np.empty(3 * _STACK, np.int64), np.empty(longest + PADDING, np.uint8)
    visited = np.full(len(paths.tree.path), -1, np.int64)  # per node: the row of the last event that visited it
    room = _WalkBuffers(address_of(stack), address_of(visited), address_of(key_text))
    _find_parts(text, texts.start, texts.end, rows, tree, paths.tails, part_tables(parts), paths.width, room)
    return parts


def part_tables(parts: Parts) -> PartTables:
    """Return the addresses of the arrays of `parts`, which are valid while these arrays live."""
    return PartTables(*[address_of(array) for array in parts])


@compiled
def _find_parts(
    text: int, start: Any, end: Any, rows: Any, tree: Any, tails: Any, parts: Any, width: int, room: Any
) -> None:
    for slot in range(rows.shape[0]):
        event = rows[slot]
        row = slot * width
        stop = end[event]
        _walk(text, skip_space(text, start[event]), stop, 0, tree, parts, row, slot, room)
        for tail in range(tails.shape[0]):
            array = row + tails[tail, 0]
            if byte_at(parts.kind, array) == ARRAY:
                position = _element_from_end(text, int64_at(parts.position, array), stop, tails[tail, 1])
                if position >= 0:
                    _walk(text, position, stop, tails[tail, 2], tree, parts, row, slot, room)


@compiled
def _walk(
    text: int, position: int, stop: int, root: int, tree: Any, parts: Any, row: int, slot: int, room: Any
) -> None:
    """Record the parts of the value at `position`, which is at node `root`."""
    # Per open object or array: its node, where it begins, and the number of the current element, -1 for an object.
    node_of, begin_of, element_of = room.stack, room.stack + 8 * _STACK, room.stack + 16 * _STACK
    visited, key_text = room.visited, room.key_text
    depth, node = -1, root
    while True:
        # 1. The value at a requested node.
        if int64_at(visited, node) == slot:  # a duplicate key: the last one counts
            _clear_parts(tree, node, parts, row)
        put_int64(visited, node, slot)
        byte = byte_at(text, position)
        if (byte == OPEN_OBJECT or byte == OPEN_ARRAY) and int32_at(tree.edge_count, node) > 0:
            depth += 1
            put_int64(node_of, depth, node)
            put_int64(begin_of, depth, position)
            put_int64(element_of, depth, 0 if byte == OPEN_ARRAY else -1)
            position = skip_space(text, position + 1)
        else:
            begin = position
            position, kind = _end_and_kind(text, begin, stop)
            _record(tree, node, parts, row, kind, begin, position)
            position = _position_behind(text, position, element_of, depth)
        # 2. Until the next requested value: the end of an open object or array, or another member or element.
        found = False
        while depth >= 0 and not found:
            byte = byte_at(text, position)
            node = int64_at(node_of, depth)
            element = int64_at(element_of, depth)
            if byte == CLOSE_OBJECT or byte == CLOSE_ARRAY:
                kind = OBJECT if byte == CLOSE_OBJECT else ARRAY
                _record(tree, node, parts, row, kind, int64_at(begin_of, depth), position + 1)
                depth -= 1
                position = _position_behind(text, position + 1, element_of, depth)
                continue
            if element >= 0:
                edge = find_index(tree, node, element)
            else:
                key = position + 1
                position = quick_string_end(text, key)
                if position >= 0:
                    edge = find_edge(tree, node, text, key, position - key)
                else:
                    position = string_end(text, key, stop)
                    edge = find_edge(tree, node, key_text, 0, unescape(text, key, position - key, key_text))
                position = skip_space(text, skip_space(text, position + 1) + 1)
            if edge >= 0:
                found, node = True, int32_at(tree.child, edge)
            else:
                position, _ = _end_and_kind(text, position, stop)
                position = _position_behind(text, position, element_of, depth)
        if depth < 0:
            return


@compiled
def _position_behind(text: int, position: int, element_of: int, depth: int) -> int:
    """Return the position of the next member, element or closing bracket after a value; advance the element number."""
    if depth < 0:
        return position
    position = skip_space(text, position)
    if byte_at(text, position) == COMMA:
        position = skip_space(text, position + 1)
        if int64_at(element_of, depth) >= 0:
            put_int64(element_of, depth, int64_at(element_of, depth) + 1)
    return position


@compiled
def _record(tree: Any, node: int, parts: Any, row: int, kind: int, begin: int, end: int) -> None:
    part = int32_at(tree.path, node)
    if part >= 0:
        quote = 1 if kind == STRING or kind == ESCAPED else 0
        put_byte(parts.kind, row + part, kind)
        put_int64(parts.position, row + part, begin + quote)
        put_int32(parts.length, row + part, end - begin - 2 * quote)


@compiled
def _clear_parts(tree: Any, node: int, parts: Any, row: int) -> None:
    for below in range(node, int32_at(tree.last, node) + 1):
        if int32_at(tree.path, below) >= 0:
            put_byte(parts.kind, row + int32_at(tree.path, below), MISSING)


@compiled
def _element_from_end(text: int, array: int, stop: int, index: int) -> Any:
    """Return where an array's element number `index` (-1: the last one) begins, or -1 if there are too few elements."""
    count = _element(text, array, stop, -1)
    return _element(text, array, stop, count + index) if count + index >= 0 else -1


@compiled
def _element(text: int, array: int, stop: int, wanted: int) -> Any:
    """Return where an array's element number `wanted` begins; if `wanted` is -1, return the number of elements."""
    position = skip_space(text, array + 1)
    element = 0
    while byte_at(text, position) != CLOSE_ARRAY:
        if element == wanted:
            return position
        position, _ = _end_and_kind(text, position, stop)
        position = skip_space(text, position)
        if byte_at(text, position) == COMMA:
            position = skip_space(text, position + 1)
        element += 1
    return element


@compiled
def _end_and_kind(text: int, position: int, stop: int) -> Any:
    """Return the position after the value of strict JSON that begins at `position`, and its kind."""
    byte = byte_at(text, position)
    if byte == QUOTE:
        end = quick_string_end(text, position + 1)
        if end >= 0:
            return end + 1, STRING
        end = string_end(text, position + 1, stop)
        return end + 1, ESCAPED if has_escape(text, position + 1, end) else STRING
    if byte == OPEN_OBJECT or byte == OPEN_ARRAY:
        return value_end(text, position, stop), OBJECT if byte == OPEN_OBJECT else ARRAY
    if byte <= _NINE:
        return number_end(text, position, stop), NUMBER
    if byte == _T:
        return position + 4, TRUE
    return (position + 5, FALSE) if byte == _F else (position + 4, NULL)
