"""Handles an event whose leaves need more classes than fit: their rows are joined path by path.

Ten thousand different numbers in an array may be ten thousand classes. Their rows are wanted one after the other only,
to be ORed to the one row of their path: there is one for every column, kept in front of the classes, which may be
dropped as often as it takes. What is lost is which leaf did what, so a branch whose leaf lists may have been met in
different elements of one array is handed back (`JOINED_LEAVES`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.classes import NO_ROOM, clear
from eventbridge.matching.kernel.classify import class_by_lookups
from eventbridge.matching.kernel.event_tables import (
    JOINED_LEAVES,
    LEAF_NEXT,
    PATH_CURRENT,
    PATH_FIRST_LEAF,
    PATH_NESTED,
    PRESENT_PATHS,
)
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.leaves import FREE
from eventbridge.matching.scan.memory import int32_at, int64_at, put_int32, put_word, word_at

_ONE = np.uint64(1)


@compiled
def join_leaves(
    tables: int,
    event_tables: int,
    text: int,
    plain: int,
    folded: int,
    tree_path: int,
    leaves: Any,
    first: int,
    last: int,
    regex_first: int,
    regex_count: int,
    regexes: int,
    stamp: int,
) -> Any:
    """Note the leaves `first` to `last` (excluded) of an event; return how many paths have one.

    NO_ROOM if not even the rows of the columns and one class have room.
    """
    counters = int64_at(tables, t.COUNTERS)
    kept = int64_at(counters, t.COUNTER_FIXED_ROWS) + int64_at(tables, t.COLUMNS)
    if kept > int64_at(tables, t.CLASS_CAPACITY):
        return NO_ROOM
    put_word(event_tables, JOINED_LEAVES, _ONE)
    _clear_behind(tables, kept)
    present = 0
    for leaf in range(first, last):
        if leaves.node[leaf] < 0:
            continue
        path = int32_at(tree_path, leaves.node[leaf])
        row = NO_ROOM
        for attempt in range(2):
            if attempt == 1:
                _clear_behind(tables, kept)
            row = class_by_lookups(
                tables,
                path,
                int(leaves.kind[leaf]),
                text,
                leaves.position[leaf],
                int(leaves.length[leaf]),
                regexes,
                int32_at(regex_first, leaf) if regexes != 0 else 0,
                int32_at(regex_count, leaf) if regexes != 0 else 0,
                plain,
                folded,
            )
            if row != NO_ROOM:
                break
        firsts = int64_at(event_tables, PATH_FIRST_LEAF)
        is_first = int32_at(firsts, path) < 0
        put_int32(int64_at(event_tables, LEAF_NEXT), leaf, int32_at(firsts, path))
        put_int32(firsts, path, leaf)
        if is_first:
            put_int32(int64_at(event_tables, PRESENT_PATHS), present, path)
            present += 1
        if row == NO_ROOM:
            return NO_ROOM - present
        _join(tables, event_tables, path, row, is_first)
        if leaves.array[leaf] != FREE:
            put_word(int64_at(event_tables, PATH_NESTED), path, np.uint64(stamp))
    return present


@compiled
def _clear_behind(tables: int, kept: int) -> None:
    """Drop all classes and use the rows from number `kept` on only."""
    clear(tables)
    put_word(int64_at(tables, t.COUNTERS), t.COUNTER_ROWS, np.uint64(kept))


@compiled
def _join(tables: int, event_tables: int, path: int, row: int, is_first: bool) -> None:
    """Add the rows of a leaf's class to what its path has met."""
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    fixed = int64_at(int64_at(tables, t.COUNTERS), t.COUNTER_FIXED_ROWS)
    joined = fixed + int32_at(int64_at(tables, t.PATH_COLUMN), path)
    put_int32(int64_at(event_tables, PATH_CURRENT), path, joined)
    source, into = rows + 8 * row * stride, rows + 8 * joined * stride
    for word in range(int32_at(int64_at(tables, t.PATH_WIDTH), path) * stride):
        bits = word_at(source, word)
        put_word(into, word, bits if is_first else bits | word_at(into, word))
