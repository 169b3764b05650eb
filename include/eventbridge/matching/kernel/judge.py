"""Computes the rules that an event matches from the classes of its leaves: one AND over rows of bits, then a check of
the branches that remain.

Every column has one row for the event: the row for the class of its leaf, or for the class that means no leaf. A branch
holds if its bit is set in the row of every column. The AND starts with the summaries, 64 words at a time, and reads
only words that are non-zero in every row. Columns are sorted so that the most selective ones come first.

If arrays give a path several leaves, the column's row is the OR of their rows: a leaf list is met if any leaf meets it.
The OR also accepts a branch whose fields are met in different elements of one array. So branches with that risk
(`BRANCH_MAY_CONFLICT`) are checked element by element if the event has leaves in array elements.

Invariants: the result of a rule depends only on its own bits. The compiled code hands back each pair of event and rule
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

_PREFETCHED: Final = 2048  # the maximum bytes of a row to prefetch: the bits of 16,000 branches

_ATTEMPTS_BEFORE_JOINING: Final = 2
"""The number of attempts at an event whose classes do not fit, before the rows of its leaves are joined."""

ALL_RULES: Final = -1
"""In place of a rule number: the event is handed back for every rule, because its classes do not fit the tables."""

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

    That is the number of events, or less if `rules` or `handed` is full: then call again with more room. The rules of
    event i are `rules[offsets[i]:offsets[i + 1]]`, in no particular order. `handed` contains `handed_count[0]` pairs of
    event and rule that the reference matcher must decide.
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
            if attempt == _ATTEMPTS_BEFORE_JOINING:
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
            for leaf in range(first, last if attempt < _ATTEMPTS_BEFORE_JOINING else first):
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
                # With many rules the rows exceed the caches, so they are prefetched during the next look-ups.
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
                chained = _admit_absent_leaves(tables, event_tables, present, chained, stamp)
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
            _reset_paths(tables, event_tables, present)
            put_word(event_tables, JOINED_LEAVES, _ZERO)
            if result == NO_ROOM and attempt < _ATTEMPTS_BEFORE_JOINING:
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
    """Add a leaf to its path; return the event's number n of further classes, or -1 - n for the path's first leaf."""
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
def _admit_absent_leaves(tables: int, event_tables: int, present: int, chained: int, stamp: int) -> Any:
    """At paths with leaves in array elements, admit branches that allow no leaf: the chosen element may have none."""
    for index in range(present):
        path = int32_at(int64_at(event_tables, PRESENT_PATHS), index)
        if int64_at(int64_at(event_tables, PATH_NESTED), path) == stamp:
            row = int32_at(int64_at(tables, t.PATH_LACKING), path)
            if row >= 0:
                chained = _chain(event_tables, path, row, chained)
    return chained


@inlined
def _reset_paths(tables: int, event_tables: int, present: int) -> None:
    """Reset the paths of the event to the state without a leaf."""
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
    """Record the leaves `first` to `last` (excluded) of an event, and OR the rows of each path's leaves into one row.

    Return the number of paths with a leaf. If even the rows of the columns and one class do not fit, return
    NO_ROOM - n, where n is the number of paths recorded until then.
    """
    counters = int64_at(tables, t.COUNTERS)
    kept = int64_at(counters, t.COUNTER_FIXED_ROWS) + int64_at(tables, t.COLUMNS)
    if kept > int64_at(tables, t.CLASS_CAPACITY):
        return NO_ROOM
    put_word(event_tables, JOINED_LEAVES, _ONE)
    _clear_rows_from(tables, kept)
    present = 0
    for leaf in range(first, last):
        if leaves.node[leaf] < 0:
            continue
        path = int32_at(tree_path, leaves.node[leaf])
        row = NO_ROOM
        for attempt in range(2):
            if attempt == 1:
                _clear_rows_from(tables, kept)
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
        _join_rows(tables, event_tables, path, row, is_first)
        if leaves.array[leaf] != FREE:
            put_word(int64_at(event_tables, PATH_NESTED), path, np.uint64(stamp))
    return present


@compiled
def _clear_rows_from(tables: int, kept: int) -> None:
    """Drop all classes, and use only the rows from number `kept` on for new ones."""
    clear(tables)
    put_word(int64_at(tables, t.COUNTERS), t.COUNTER_ROWS, np.uint64(kept))


@compiled
def _join_rows(tables: int, event_tables: int, path: int, row: int, is_first: bool) -> None:
    """OR the rows of a leaf's class into the joined rows of its path."""
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    fixed = int64_at(int64_at(tables, t.COUNTERS), t.COUNTER_FIXED_ROWS)
    joined = fixed + int32_at(int64_at(tables, t.PATH_COLUMN), path)
    put_int32(int64_at(event_tables, PATH_CURRENT), path, joined)
    source, into = rows + 8 * row * stride, rows + 8 * joined * stride
    for word in range(int32_at(int64_at(tables, t.PATH_WIDTH), path) * stride):
        bits = word_at(source, word)
        put_word(into, word, bits if is_first else bits | word_at(into, word))
