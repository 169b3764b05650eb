"""Computes the rules that an event matches from the classes of its leaves: one AND over rows of bits, then a check of
the candidates.

Every column has one row for the event: that of the class of its leaf, or of having none. A branch holds if its bit is
set in the row of every column. The AND goes over the summaries first, 64 words at a time, and touches only words in
which every row has something; columns are sorted so that the most selective ones come first.

Where arrays give a path several leaves, the column's row is the OR of theirs: a leaf list is met if any leaf meets it.
The OR also accepts a branch whose fields are met in different elements of one array. So branches with that risk
(`BRANCH_MAY_CONFLICT`) are checked element by element if the event has leaves in array elements.

Invariants: the result of a rule depends on its own bits alone; the compiled code hands back each pair of event and rule
that it cannot decide, and never guesses.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.candidates import collect_chained, collect_single, decide, gather_all, gather_present
from eventbridge.matching.kernel.classes import NO_ROOM, class_by_lookups, class_of, clear
from eventbridge.matching.kernel.event_tables import (
    CANDIDATES,
    CHAIN_NEXT,
    CHAIN_ROW,
    JOINED_LEAVES,
    LEAF_NEXT,
    LEAF_ROW,
    PATH_CHAIN,
    PATH_CURRENT,
    PATH_FIRST_LEAF,
    PATH_NESTED,
    PRESENT_PATHS,
    ROW_STAMP,
    TOUCHED_COUNT,
)
from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.leaves import FREE, MALFORMED, NESTED
from eventbridge.matching.scan.memory import int32_at, int64_at, prefetch, put_int32, put_word, word_at

_PREFETCHED: Final = 2048  # bytes of a row: 16,000 branches

_JOINED: Final = 2
"""Attempts at an event whose classes do not fit, before the rows of its leaves are joined."""

ALL_RULES: Final = -1
"""Handed back for every rule: the event itself is beyond the compiled code."""

_ONE, _ZERO = np.uint64(1), np.uint64(0)


@compiled
def judge(
    tables: int,
    event_tables: int,
    text: int,
    plain: int,
    folded: int,
    tree_path: int,
    leaves: Any,
    first_leaf: Any,
    status: Any,
    regex_first: int,
    regex_count: int,
    regexes: int,
    first_event: int,
    offsets: Any,
    rules: Any,
    handed: Any,
    handed_count: Any,
) -> Any:
    """Write the rules that each event matches, from `first_event` on; return the first event that was not judged.

    That is the number of events, or less if `rules` or `handed` has no more room: call again with more. The rules of
    event i are `rules[offsets[i]:offsets[i + 1]]`, in the order of their bits; `handed` are pairs of event and rule
    that the reference matcher must decide, `handed_count[0]` of them.
    """
    events = status.shape[0]
    counters = int64_at(tables, t.COUNTERS)
    leaf_rows = int64_at(event_tables, LEAF_ROW)
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    anchored, candidates = int64_at(tables, t.ANCHORED) != 0, int64_at(event_tables, CANDIDATES)
    row_bytes = min(8 * stride, _PREFETCHED)
    if anchored:
        row_bytes = 8 * int64_at(tables, t.SUMMARY_WORDS)  # only a few words of a long row are examined
    output, room = rules.ctypes.data, rules.shape[0]
    back_output, back_room = handed.ctypes.data, handed.shape[0]
    count = offsets[first_event]
    back = handed_count[0]
    for event in range(first_event, events):
        offsets[event] = count
        if status[event] == MALFORMED:
            continue
        first, last = first_leaf[event], first_leaf[event + 1]
        attempt = 0
        while True:
            stamp = int64_at(counters, t.COUNTER_STAMP) + 1
            put_word(counters, t.COUNTER_STAMP, np.uint64(stamp))
            result = 0
            present = 0
            chained = 0
            if attempt == _JOINED:
                present = join_leaves(
                    tables,
                    event_tables,
                    text,
                    plain,
                    folded,
                    tree_path,
                    leaves,
                    first,
                    last,
                    regex_first,
                    regex_count,
                    regexes,
                    stamp,
                )
                if present < 0:
                    result, present = NO_ROOM, NO_ROOM - present
            for leaf in range(first, last if attempt < _JOINED else first):
                if leaves.node[leaf] < 0:
                    continue
                path = int32_at(tree_path, leaves.node[leaf])
                row = class_of(
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
                if row < 0:
                    result = row
                    break
                put_int32(leaf_rows, leaf, row)
                # With many rules the rows exceed the caches: prefetch them while further leaves are looked up.
                for line in range(rows + 8 * row * stride, rows + 8 * row * stride + row_bytes, 64):
                    prefetch(line)
                chained = _note_leaf(event_tables, path, leaf, row, stamp, present, chained)
                if chained < 0:  # the first leaf at its path
                    present += 1
                    chained = -1 - chained
                if leaves.array[leaf] != FREE:
                    put_word(int64_at(event_tables, PATH_NESTED), path, np.uint64(stamp))
            full = False
            if result == 0:
                chained = _note_lacks(tables, event_tables, present, chained, stamp)
                put_word(event_tables, TOUCHED_COUNT, _ZERO)
                nested = status[event] == NESTED
                if anchored:
                    first_row, columns = candidates, gather_present(tables, event_tables, present)
                else:
                    first_row, columns = rows, gather_all(tables, event_tables)
                if chained == 0:
                    found = collect_single(tables, event_tables, first_row, columns, stamp, output, room, count, nested)
                else:
                    found = collect_chained(
                        tables, event_tables, first_row, columns, stamp, output, room, count, nested
                    )
                touched = int64_at(event_tables, TOUCHED_COUNT)
                full = found < 0 or (touched > 0 and (found + touched > room or back + touched > back_room))
                if not full:
                    count = found
                    if touched > 0:
                        count, back = decide(event_tables, event, stamp, output, count, back_output, back)
            _forget(tables, event_tables, present)
            put_word(event_tables, JOINED_LEAVES, _ZERO)
            if result == NO_ROOM and attempt < _JOINED:
                clear(tables)
                attempt += 1
                continue
            if result == NO_ROOM:
                full = back == back_room
                if not full:
                    handed[back, 0], handed[back, 1] = event, ALL_RULES
                    back += 1
            if full:
                return event
            break
        handed_count[0] = back
    offsets[events] = count
    return events


@inlined
def _note_leaf(event_tables: int, path: int, leaf: int, row: int, stamp: int, present: int, chained: int) -> Any:
    """Add a leaf to those of its path; return the number n of further classes, as -1 - n for the first leaf."""
    firsts, nexts = int64_at(event_tables, PATH_FIRST_LEAF), int64_at(event_tables, LEAF_NEXT)
    stamps = int64_at(event_tables, ROW_STAMP)
    first = int32_at(firsts, path)
    put_int32(firsts, path, leaf)
    put_int32(nexts, leaf, first)
    if first < 0:
        put_int32(int64_at(event_tables, PRESENT_PATHS), present, path)
        put_int32(int64_at(event_tables, PATH_CURRENT), path, row)
        put_word(stamps, row, np.uint64(stamp))
        return -1 - chained
    if int64_at(stamps, row) == stamp:
        return chained
    put_word(stamps, row, np.uint64(stamp))
    return _chain(event_tables, path, row, chained)


@inlined
def _chain(event_tables: int, path: int, row: int, chained: int) -> Any:
    chains = int64_at(event_tables, PATH_CHAIN)
    put_int32(int64_at(event_tables, CHAIN_ROW), chained, row)
    put_int32(int64_at(event_tables, CHAIN_NEXT), chained, int32_at(chains, path))
    put_int32(chains, path, chained)
    return chained + 1


@compiled
def _note_lacks(tables: int, event_tables: int, present: int, chained: int, stamp: int) -> Any:
    """Let pass, at paths in elements of arrays, branches that may do without: the leaf may not be of a chosen one."""
    for index in range(present):
        path = int32_at(int64_at(event_tables, PRESENT_PATHS), index)
        if int64_at(int64_at(event_tables, PATH_NESTED), path) == stamp:
            row = int32_at(int64_at(tables, t.PATH_LACKING), path)
            if row >= 0:
                chained = _chain(event_tables, path, row, chained)
    return chained


@inlined
def _forget(tables: int, event_tables: int, present: int) -> None:
    """Set the paths of the event back to having no leaf."""
    for index in range(present):
        path = int32_at(int64_at(event_tables, PRESENT_PATHS), index)
        absent = int32_at(int64_at(tables, t.PATH_ABSENT), path)
        put_int32(int64_at(event_tables, PATH_CURRENT), path, absent)
        put_int32(int64_at(event_tables, PATH_FIRST_LEAF), path, -1)
        put_int32(int64_at(event_tables, PATH_CHAIN), path, -1)


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
    """Record the leaves `first` to `last` (excluded) of an event; return the number of paths that have one.

    NO_ROOM if even the rows of the columns and one class do not fit.
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
    """Drop all classes, and use only the rows from number `kept` on."""
    clear(tables)
    put_word(int64_at(tables, t.COUNTERS), t.COUNTER_ROWS, np.uint64(kept))


@compiled
def _join(tables: int, event_tables: int, path: int, row: int, is_first: bool) -> None:
    """Add the rows of a leaf's class to the bits that its path has met."""
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    fixed = int64_at(int64_at(tables, t.COUNTERS), t.COUNTER_FIXED_ROWS)
    joined = fixed + int32_at(int64_at(tables, t.PATH_COLUMN), path)
    put_int32(int64_at(event_tables, PATH_CURRENT), path, joined)
    source, into = rows + 8 * row * stride, rows + 8 * joined * stride
    for word in range(int32_at(int64_at(tables, t.PATH_WIDTH), path) * stride):
        bits = word_at(source, word)
        put_word(into, word, bits if is_first else bits | word_at(into, word))
