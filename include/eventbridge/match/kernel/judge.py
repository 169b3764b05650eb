"""From the classes of an event's leaves to the rules it matches: one AND over rows of bits, then a look at survivors.

Every column has one row for the event: that of the class of its leaf, or of having none. A branch holds if its bit is
set in the rows of all columns. The AND goes over the summaries first, 64 words at a time, and touches only words in
which every row has something; columns are sorted so that the most selective ones come first.

Where arrays give a path several leaves, the column's row is the OR of theirs: a leaf list is met if any leaf meets it.
That lets through a branch whose fields are met in different elements of one array, so branches that can be in that
case (`BRANCH_MAY_CONFLICT`) are checked element by element when the event has leaves in elements of arrays.

Invariants: what a rule gets depends on its own bits alone; what the compiled code cannot decide is handed back, event
and rule, never guessed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.match.kernel import tables as t
from eventbridge.match.kernel.classify import NO_ROOM, UNDECIDED, class_of, clear
from eventbridge.scan.compiled import compiled, inlined
from eventbridge.scan.leaves import FREE, MALFORMED, NESTED
from eventbridge.scan.memory import (
    byte_at,
    int32_at,
    int64_at,
    lowest_bit,
    put_int32,
    put_word,
    word_at,
)

ALL_RULES: Final = -1
"""Handed back for every rule: the event itself is beyond the compiled code."""

_ONE, _ZERO = np.uint64(1), np.uint64(0)
_CONFLICT, _HOLDS, _HAND_BACK = 0, 1, 2

# What the event at hand is, by address; see EventTables.
(
    LEAF_ROW,  # per leaf: the row of its class
    LEAF_NEXT,  # per leaf: the next leaf at the same path, -1
    LEAF_ARRAY,
    LEAF_ELEMENT,
    PATH_FIRST_LEAF,  # per path: the first leaf, -1
    PATH_CURRENT,  # per path: the row of the class of the first leaf, or of having none
    PATH_CHAIN,  # per path: the first further class, -1
    PATH_NESTED,  # per path: the stamp of the last event that had a leaf there in an element of an array
    CHAIN_ROW,
    CHAIN_NEXT,
    ROW_STAMP,  # per row: the stamp of the last event that noted it
    ELEMENT_COUNT,  # per element of the array at hand: how many fields it meets
    RULE_YES,  # per rule: the stamp of the last event with a positive branch that holds
    RULE_NO,
    RULE_BACK,
    TOUCHED_RULES,
    COLUMN_ADDRESS,  # per column: where its row begins
    PRESENT_PATHS,
    TOUCHED_COUNT,  # a plain number
) = range(19)
EVENT_TABLE_COUNT: Final = 19


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
    output, room = rules.ctypes.data, rules.shape[0]
    back_output, back_room = handed.ctypes.data, handed.shape[0]
    count = offsets[first_event]
    back = handed_count[0]
    for event in range(first_event, events):
        offsets[event] = count
        if status[event] == MALFORMED:
            continue
        first, last = first_leaf[event], first_leaf[event + 1]
        cleared = False
        while True:
            stamp = int64_at(counters, t.COUNTER_STAMP) + 1
            put_word(counters, t.COUNTER_STAMP, np.uint64(stamp))
            verdict = 0
            present = 0
            chained = 0
            for leaf in range(first, last):
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
                    verdict = row
                    break
                put_int32(leaf_rows, leaf, row)
                chained = _note_leaf(event_tables, path, leaf, row, stamp, present, chained)
                if chained < 0:  # the first leaf at its path
                    present += 1
                    chained = -1 - chained
                if leaves.array[leaf] != FREE:
                    put_word(int64_at(event_tables, PATH_NESTED), path, np.uint64(stamp))
            full = False
            if verdict == 0:
                chained = _note_lacks(tables, event_tables, present, chained, stamp)
                put_word(event_tables, TOUCHED_COUNT, _ZERO)
                nested = status[event] == NESTED
                if chained == 0:
                    found = _collect_single(tables, event_tables, event, stamp, output, room, count, nested)
                else:
                    found = _collect_chained(tables, event_tables, event, stamp, output, room, count, nested)
                touched = int64_at(event_tables, TOUCHED_COUNT)
                full = found < 0 or (touched > 0 and (found + touched > room or back + touched > back_room))
                if not full:
                    count = found
                    if touched > 0:
                        count, back = _decide(event_tables, event, stamp, output, count, back_output, back)
            _forget(tables, event_tables, present)
            if verdict == NO_ROOM and not cleared:
                clear(tables)
                cleared = True
                continue
            if verdict == NO_ROOM or verdict == UNDECIDED:
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
    """Add a leaf to those of its path; return how many further classes there are, as -1 - n if it is the first leaf."""
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


@inlined
def _gather_columns(tables: int, event_tables: int) -> None:
    """Write where each column's row begins; with the path's chain it is all that the AND reads."""
    paths, offsets = int64_at(tables, t.COLUMN_PATH), int64_at(tables, t.COLUMN_OFFSET)
    current, addresses = int64_at(event_tables, PATH_CURRENT), int64_at(event_tables, COLUMN_ADDRESS)
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    for column in range(int64_at(tables, t.COLUMNS)):
        row = int32_at(current, int32_at(paths, column)) + int32_at(offsets, column)
        put_word(addresses, column, np.uint64(rows + 8 * row * stride))


@compiled
def _collect_single(
    tables: int, event_tables: int, event: int, stamp: int, rules: int, room: int, count: int, nested: bool
) -> Any:
    """Write the rules of an event with one class per path; return their number, -1 if there is no room.

    Rules with more to be said are among the touched ones.
    """
    _gather_columns(tables, event_tables)
    summary_words = int64_at(tables, t.SUMMARY_WORDS)
    columns = int64_at(tables, t.COLUMNS)
    everyone = int64_at(tables, t.ROWS)  # row 0: all branches
    addresses = int64_at(event_tables, COLUMN_ADDRESS)
    for summary_word in range(summary_words):
        busy = word_at(everyone, summary_word)
        for column in range(columns):
            busy &= word_at(int64_at(addresses, column), summary_word)
            if busy == _ZERO:
                break
        while busy != _ZERO:
            word = summary_word * 64 + lowest_bit(busy)
            busy &= busy - _ONE
            bits = word_at(everyone, summary_words + word)
            for column in range(columns):
                bits &= word_at(int64_at(addresses, column), summary_words + word)
                if bits == _ZERO:
                    break
            if bits != _ZERO:
                count = _survivors(tables, event_tables, stamp, word, bits, rules, room, count, nested)
                if count < 0:
                    return -1
    return count


@compiled
def _collect_chained(
    tables: int, event_tables: int, event: int, stamp: int, rules: int, room: int, count: int, nested: bool
) -> Any:
    """Do the same for an event with a path of several classes: its row is the OR of theirs."""
    _gather_columns(tables, event_tables)
    summary_words = int64_at(tables, t.SUMMARY_WORDS)
    columns = int64_at(tables, t.COLUMNS)
    everyone = int64_at(tables, t.ROWS)
    addresses, column_paths = int64_at(event_tables, COLUMN_ADDRESS), int64_at(tables, t.COLUMN_PATH)
    column_offsets = int64_at(tables, t.COLUMN_OFFSET)
    chains = int64_at(event_tables, PATH_CHAIN)
    for summary_word in range(summary_words):
        busy = word_at(everyone, summary_word)
        for column in range(columns):
            here = word_at(int64_at(addresses, column), summary_word)
            link = int32_at(chains, int32_at(column_paths, column))
            if link >= 0:
                here |= _or_chain(tables, event_tables, link, int32_at(column_offsets, column), summary_word)
            busy &= here
            if busy == _ZERO:
                break
        while busy != _ZERO:
            word = summary_word * 64 + lowest_bit(busy)
            busy &= busy - _ONE
            bits = word_at(everyone, summary_words + word)
            for column in range(columns):
                here = word_at(int64_at(addresses, column), summary_words + word)
                link = int32_at(chains, int32_at(column_paths, column))
                if link >= 0:
                    offset = int32_at(column_offsets, column)
                    here |= _or_chain(tables, event_tables, link, offset, summary_words + word)
                bits &= here
                if bits == _ZERO:
                    break
            if bits != _ZERO:
                count = _survivors(tables, event_tables, stamp, word, bits, rules, room, count, nested)
                if count < 0:
                    return -1
    return count


@inlined
def _or_chain(tables: int, event_tables: int, link: int, offset: int, word: int) -> Any:
    bits = _ZERO
    chain_rows, nexts = int64_at(event_tables, CHAIN_ROW), int64_at(event_tables, CHAIN_NEXT)
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    while link >= 0:
        bits |= word_at(rows, (int32_at(chain_rows, link) + offset) * stride + word)
        link = int32_at(nexts, link)
    return bits


@inlined
def _survivors(
    tables: int, event_tables: int, stamp: int, word: int, bits: Any, rules: int, room: int, count: int, nested: bool
) -> Any:
    """Write the rules of the branches whose bits are left in a word; those with more to be said are only touched."""
    branch_rules, flags = int64_at(tables, t.BRANCH_RULE), int64_at(tables, t.BRANCH_FLAGS)
    if count + 64 > room:
        return -1
    while bits != _ZERO:
        branch = word * 64 + lowest_bit(bits)
        bits &= bits - _ONE
        flag = byte_at(flags, branch)
        if flag == t.BRANCH_SIMPLE or (flag == t.BRANCH_SIMPLE | t.BRANCH_MAY_CONFLICT and not nested):
            put_int32(rules, count, int32_at(branch_rules, branch))
            count += 1
        else:
            count = _look_closer(tables, event_tables, stamp, branch, flag, rules, count, nested)
    return count


@compiled
def _look_closer(
    tables: int, event_tables: int, stamp: int, branch: int, flag: int, rules: int, count: int, nested: bool
) -> Any:
    rule = int32_at(int64_at(tables, t.BRANCH_RULE), branch)
    verdict = _HOLDS
    if nested and flag & t.BRANCH_MAY_CONFLICT:
        verdict = _without_conflict(tables, event_tables, branch, stamp)
        if verdict == _CONFLICT:
            return count
    if flag & t.BRANCH_SIMPLE and verdict == _HOLDS:
        put_int32(rules, count, rule)
        return count + 1
    yes, no = int64_at(event_tables, RULE_YES), int64_at(event_tables, RULE_NO)
    unsure = int64_at(event_tables, RULE_BACK)
    if int64_at(yes, rule) != stamp and int64_at(no, rule) != stamp and int64_at(unsure, rule) != stamp:
        touched = int64_at(event_tables, TOUCHED_COUNT)
        put_int32(int64_at(event_tables, TOUCHED_RULES), touched, rule)
        put_word(event_tables, TOUCHED_COUNT, np.uint64(touched + 1))
    if verdict == _HAND_BACK or flag & t.BRANCH_UNCERTAIN:
        put_word(unsure, rule, np.uint64(stamp))
    elif flag & t.BRANCH_NEGATIVE:
        put_word(no, rule, np.uint64(stamp))
    else:
        put_word(yes, rule, np.uint64(stamp))
    return count


@compiled
def _decide(event_tables: int, event: int, stamp: int, rules: int, count: int, handed: int, back: int) -> Any:
    """Write the touched rules that match, and hand back those that are not certain; return both counts."""
    for index in range(int64_at(event_tables, TOUCHED_COUNT)):
        rule = int32_at(int64_at(event_tables, TOUCHED_RULES), index)
        if int64_at(int64_at(event_tables, RULE_BACK), rule) == stamp:
            put_word(handed, 2 * back, np.uint64(event))
            put_word(handed, 2 * back + 1, np.uint64(rule))
            back += 1
        elif int64_at(int64_at(event_tables, RULE_NO), rule) != stamp:
            put_int32(rules, count, rule)
            count += 1
    return count, back


@inlined
def _passes(tables: int, row: int, offset: int, branch: int) -> Any:
    place = (row + offset) * int64_at(tables, t.STRIDE) + int64_at(tables, t.SUMMARY_WORDS) + (branch >> 6)
    word = word_at(int64_at(tables, t.ROWS), place)
    return (word >> np.uint64(branch & 63)) & _ONE != _ZERO


@compiled
def _without_conflict(tables: int, event_tables: int, branch: int, stamp: int) -> Any:
    """Tell whether the branch's fields can be met by leaves of which no two lie in different elements of one array."""
    paths, offsets = int64_at(tables, t.FIELD_PATH), int64_at(tables, t.FIELD_OFFSET)
    may_be_absent = int64_at(tables, t.FIELD_MAY_BE_ABSENT)
    nested = int64_at(event_tables, PATH_NESTED)
    firsts = int64_at(tables, t.BRANCH_FIELDS_FIRST)
    first, stop = int32_at(firsts, branch), int32_at(firsts, branch + 1)
    inside, lacks, last_inside = 0, False, -1
    for field in range(first, stop):
        if int64_at(nested, int32_at(paths, field)) == stamp:
            inside += 1
            last_inside = field
            if byte_at(may_be_absent, field) != 0:
                lacks = True
    if inside == 0:
        return _HOLDS
    if inside == 1:
        return _HOLDS if _met_anywhere(tables, event_tables, last_inside, branch) else _CONFLICT
    if lacks or stop - first > 63:
        return _HAND_BACK
    done = _ZERO
    for field in range(first, stop):
        if int64_at(nested, int32_at(paths, field)) != stamp or (done >> np.uint64(field - first)) & _ONE != _ZERO:
            continue
        array = _array_of(tables, event_tables, int32_at(paths, field), int32_at(offsets, field), branch)
        if array == FREE:
            continue
        if array < 0:
            return _HAND_BACK
        sharing = 0
        for other in range(field, stop):
            if int64_at(nested, int32_at(paths, other)) != stamp:
                continue
            path, offset = int32_at(paths, other), int32_at(offsets, other)
            other_array = array if other == field else _array_of(tables, event_tables, path, offset, branch)
            if other_array == array:
                done |= _ONE << np.uint64(other - first)
                _count_elements(tables, event_tables, path, offset, branch, sharing)
                sharing += 1
        if not _forget_elements(tables, event_tables, int32_at(paths, field), sharing):
            return _CONFLICT
    return _HOLDS


@compiled
def _met_anywhere(tables: int, event_tables: int, field: int, branch: int) -> bool:
    """Tell whether a leaf, wherever it lies, meets a field."""
    path = int32_at(int64_at(tables, t.FIELD_PATH), field)
    offset = int32_at(int64_at(tables, t.FIELD_OFFSET), field)
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if _passes(tables, int32_at(int64_at(event_tables, LEAF_ROW), leaf), offset, branch):
            return True
        leaf = int32_at(int64_at(event_tables, LEAF_NEXT), leaf)
    return False


@compiled
def _array_of(tables: int, event_tables: int, path: int, offset: int, branch: int) -> Any:
    """Return the array in whose elements the leaves lie that meet a field; FREE if one lies in none, -3 if several."""
    array = -1
    known = False
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if _passes(tables, int32_at(int64_at(event_tables, LEAF_ROW), leaf), offset, branch):
            here = int32_at(int64_at(event_tables, LEAF_ARRAY), leaf)
            if here == FREE:
                return FREE
            if here < 0 or (known and here != array):
                array = -3
            elif not known:
                array = here
            known = True
        leaf = int32_at(int64_at(event_tables, LEAF_NEXT), leaf)
    return array if known else -3


@compiled
def _count_elements(tables: int, event_tables: int, path: int, offset: int, branch: int, sharing: int) -> None:
    """Count one more field for each element that met the `sharing` fields before and meets this one."""
    counts = int64_at(event_tables, ELEMENT_COUNT)
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if _passes(tables, int32_at(int64_at(event_tables, LEAF_ROW), leaf), offset, branch):
            element = int32_at(int64_at(event_tables, LEAF_ELEMENT), leaf)
            if int32_at(counts, element) == sharing:
                put_int32(counts, element, sharing + 1)
        leaf = int32_at(int64_at(event_tables, LEAF_NEXT), leaf)


@compiled
def _forget_elements(tables: int, event_tables: int, path: int, sharing: int) -> bool:
    """Set the counts back to 0; tell whether one of them was that of all fields."""
    counts = int64_at(event_tables, ELEMENT_COUNT)
    complete = False
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if int32_at(int64_at(event_tables, LEAF_ARRAY), leaf) >= 0:
            element = int32_at(int64_at(event_tables, LEAF_ELEMENT), leaf)
            complete |= int32_at(counts, element) == sharing
            put_int32(counts, element, 0)
        leaf = int32_at(int64_at(event_tables, LEAF_NEXT), leaf)
    return complete


__all__ = ["ALL_RULES", "EVENT_TABLE_COUNT", "judge"]
