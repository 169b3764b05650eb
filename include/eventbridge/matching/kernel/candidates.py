"""Computes the AND over the rows of all columns, and writes the rules of the branches that remain.

A remaining branch with leaf lists inside arrays is checked for array consistency."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.event_tables import (
    CANDIDATES,
    CHAIN_NEXT,
    CHAIN_ROW,
    CHAINED_COLUMNS,
    COLUMN_ADDRESS,
    COLUMN_OFFSET,
    COLUMN_PATH,
    ELEMENT_COUNT,
    JOINED,
    JOINED_LEAVES,
    LEAF_ARRAY,
    LEAF_ELEMENT,
    LEAF_NEXT,
    LEAF_ROW,
    LEFT,
    PATH_CHAIN,
    PATH_CURRENT,
    PATH_FIRST_LEAF,
    PATH_NESTED,
    PRESENT_PATHS,
    RULE_BACK,
    RULE_NO,
    RULE_YES,
    SINGLE_ADDRESS,
    TOUCHED_COUNT,
    TOUCHED_RULES,
)
from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.leaves import FREE
from eventbridge.matching.scan.memory import (
    byte_at,
    int32_at,
    int64_at,
    lowest_bit,
    put_int32,
    put_int64,
    put_word,
    word_at,
)
from eventbridge.matching.scan.words import VECTOR_WORDS, and_rows, and_words, copy_words, or_words

_ONE, _ZERO = np.uint64(1), np.uint64(0)
_BLOCK = np.uint64((1 << VECTOR_WORDS) - 1)


@inlined
def gather_all(tables: int, event_tables: int) -> Any:
    """Write where each column's row begins; return the number of columns."""
    paths, offsets = int64_at(tables, t.COLUMN_PATH), int64_at(tables, t.COLUMN_OFFSET)
    current, addresses = int64_at(event_tables, PATH_CURRENT), int64_at(event_tables, COLUMN_ADDRESS)
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    columns = int64_at(tables, t.COLUMNS)
    for column in range(columns):
        row = int32_at(current, int32_at(paths, column)) + int32_at(offsets, column)
        put_word(addresses, column, np.uint64(rows + 8 * row * stride))
    return columns


@compiled
def gather_present(tables: int, event_tables: int, present: int) -> Any:
    """Write the candidates, and where the rows begin for columns of paths with a leaf; return the number of columns.

    A branch with an anchor is a candidate if a leaf at its anchor admits it; one without an anchor always is.
    """
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    summary_words = int64_at(tables, t.SUMMARY_WORDS)
    current, chains = int64_at(event_tables, PATH_CURRENT), int64_at(event_tables, PATH_CHAIN)
    addresses, paths = int64_at(event_tables, COLUMN_ADDRESS), int64_at(event_tables, COLUMN_PATH)
    offsets, candidates = int64_at(event_tables, COLUMN_OFFSET), int64_at(event_tables, CANDIDATES)
    firsts, words = int64_at(tables, t.ANCHORS_FIRST), int64_at(tables, t.ANCHORS_WORD)
    anchors = int64_at(tables, t.ANCHORS_BITS)
    _begin_candidates(rows + 8 * t.ROW_WITHOUT_ANCHOR * stride, summary_words, candidates)
    count = 0
    for index in range(present):
        path = int32_at(int64_at(event_tables, PRESENT_PATHS), index)
        link = int32_at(chains, path)
        column = int32_at(int64_at(tables, t.PATH_COLUMN), path)
        for offset in range(int32_at(int64_at(tables, t.PATH_WIDTH), path)):
            row = rows + 8 * (int32_at(current, path) + offset) * stride
            put_word(addresses, count, np.uint64(row))
            put_int32(paths, count, path)
            put_int32(offsets, count, offset)
            count += 1
            for position in range(int32_at(firsts, column + offset), int32_at(firsts, column + offset + 1)):
                word = int32_at(words, position)
                bits = word_at(row, summary_words + word)
                if link >= 0:
                    bits |= _or_chain(tables, event_tables, link, offset, summary_words + word)
                bits &= word_at(anchors, position)
                if bits != _ZERO:
                    _add_candidates(candidates, summary_words, word, bits)
    return count


@inlined
def _begin_candidates(row: int, summary_words: int, candidates: int) -> None:
    """Initialise the candidates with a row; words that its summary marks as 0 are neither written nor read."""
    for summary_word in range(summary_words):
        busy = word_at(row, summary_word)
        put_word(candidates, summary_word, busy)
        while busy != _ZERO:
            word = summary_words + summary_word * 64 + lowest_bit(busy)
            busy &= busy - _ONE
            put_word(candidates, word, word_at(row, word))


@inlined
def _add_candidates(candidates: int, summary_words: int, word: int, bits: Any) -> None:
    busy, mark = word_at(candidates, word >> 6), _ONE << np.uint64(word & 63)
    if busy & mark != _ZERO:
        bits |= word_at(candidates, summary_words + word)
    put_word(candidates, word >> 6, busy | mark)
    put_word(candidates, summary_words + word, bits)


def _collector(*, chained: bool) -> Any:
    """Return a compiled function for events with (`chained`) or without a path that has leaves of several classes."""

    @compiled
    def collect(
        tables: int,
        event_tables: int,
        first_row: int,
        columns: int,
        stamp: int,
        rules: int,
        room: int,
        count: int,
        nested: bool,
    ) -> Any:
        """Append, to the `count` rules before, the rules of those branches of `first_row` that all columns accept.

        Return the new count, or -1 if `rules` has too little room. Rules that need a further check are only recorded as
        touched.
        """
        summary_words = int64_at(tables, t.SUMMARY_WORDS)
        singles, addresses, left = columns, int64_at(event_tables, COLUMN_ADDRESS), int64_at(event_tables, LEFT)
        if chained:
            singles, addresses = _partition_columns(event_tables, columns), int64_at(event_tables, SINGLE_ADDRESS)
        for block in range(0, 64 * summary_words, VECTOR_WORDS):
            # 1. Which of the next words can have remaining bits?
            if block & 63 == 0:
                busy = word_at(first_row, block >> 6)
                for column in range(singles):
                    busy &= word_at(int64_at(addresses, column), block >> 6)
                    if busy == _ZERO:
                        break
            some = busy >> np.uint64(block & 63) & _BLOCK
            if some == _ZERO:
                continue
            # 2. Which bits remain in them?
            word = summary_words + block
            some &= and_rows(first_row, addresses, singles, word, left)
            if chained and some != _ZERO:
                for index in range(columns - singles):
                    some &= _and_chain(tables, event_tables, index, word, left)
                    if some == _ZERO:
                        break
            while some != _ZERO:
                number = lowest_bit(some)
                some &= some - _ONE
                bits = word_at(left, number)
                count = _append_rules(tables, event_tables, stamp, block + number, bits, rules, room, count, nested)
                if count < 0:
                    return -1
        return count

    return collect


collect_single = _collector(chained=False)
collect_chained = _collector(chained=True)


@inlined
def _partition_columns(event_tables: int, columns: int) -> Any:
    """Write which columns have a path of several classes, and where rows of the others begin; return their number."""
    chains, paths = int64_at(event_tables, PATH_CHAIN), int64_at(event_tables, COLUMN_PATH)
    addresses, singles = int64_at(event_tables, COLUMN_ADDRESS), int64_at(event_tables, SINGLE_ADDRESS)
    chained = int64_at(event_tables, CHAINED_COLUMNS)
    count = 0
    for column in range(columns):
        if int32_at(chains, int32_at(paths, column)) < 0:
            put_int64(singles, count, int64_at(addresses, column))
            count += 1
        else:
            put_int32(chained, column - count, column)
    return count


@inlined
def _and_chain(tables: int, event_tables: int, index: int, word: int, left: int) -> Any:
    """Clear the bits that no row of a column with several classes has; return a bit for each word that is not 0."""
    column = int32_at(int64_at(event_tables, CHAINED_COLUMNS), index)
    offset = int32_at(int64_at(event_tables, COLUMN_OFFSET), column)
    rows, stride = int64_at(tables, t.ROWS), int64_at(tables, t.STRIDE)
    chain_rows, nexts = int64_at(event_tables, CHAIN_ROW), int64_at(event_tables, CHAIN_NEXT)
    joined = int64_at(event_tables, JOINED)
    copy_words(joined, int64_at(int64_at(event_tables, COLUMN_ADDRESS), column), word)
    link = int32_at(int64_at(event_tables, PATH_CHAIN), int32_at(int64_at(event_tables, COLUMN_PATH), column))
    while link >= 0:
        or_words(joined, rows + 8 * stride * (int32_at(chain_rows, link) + offset), word)
        link = int32_at(nexts, link)
    return and_words(left, joined)


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
def _append_rules(
    tables: int, event_tables: int, stamp: int, word: int, bits: Any, rules: int, room: int, count: int, nested: bool
) -> Any:
    """Append the rules of the branches whose bits remain in a word; return the new count, or -1 if there is no room.

    Rules that need a further check are only recorded as touched.
    """
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
            count = _check_branch(tables, event_tables, stamp, branch, flag, rules, count, nested)
    return count


@compiled
def _check_branch(
    tables: int, event_tables: int, stamp: int, branch: int, flag: int, rules: int, count: int, nested: bool
) -> Any:
    if flag & t.BRANCH_WANTS_MORE and not _has_all_paths(tables, event_tables, branch):
        return count
    rule = int32_at(int64_at(tables, t.BRANCH_RULE), branch)
    result = HOLDS
    if nested and flag & t.BRANCH_MAY_CONFLICT:
        result = can_meet_together(tables, event_tables, branch, stamp)
        if result == CONFLICT:
            return count
    if flag & t.BRANCH_SIMPLE and result == HOLDS:
        put_int32(rules, count, rule)
        return count + 1
    yes, no = int64_at(event_tables, RULE_YES), int64_at(event_tables, RULE_NO)
    unsure = int64_at(event_tables, RULE_BACK)
    if int64_at(yes, rule) != stamp and int64_at(no, rule) != stamp and int64_at(unsure, rule) != stamp:
        touched = int64_at(event_tables, TOUCHED_COUNT)
        put_int32(int64_at(event_tables, TOUCHED_RULES), touched, rule)
        put_word(event_tables, TOUCHED_COUNT, np.uint64(touched + 1))
    if result == HAND_BACK or flag & t.BRANCH_UNCERTAIN:
        put_word(unsure, rule, np.uint64(stamp))
    elif flag & t.BRANCH_NEGATIVE:
        put_word(no, rule, np.uint64(stamp))
    else:
        put_word(yes, rule, np.uint64(stamp))
    return count


@compiled
def _has_all_paths(tables: int, event_tables: int, branch: int) -> bool:
    """Return whether the event has a leaf at every path at which a branch requires one."""
    firsts, leaves = int64_at(tables, t.BRANCH_FIELDS_FIRST), int64_at(event_tables, PATH_FIRST_LEAF)
    paths, can_be_absent = int64_at(tables, t.FIELD_PATH), int64_at(tables, t.FIELD_MAY_BE_ABSENT)
    for field in range(int32_at(firsts, branch), int32_at(firsts, branch + 1)):
        if byte_at(can_be_absent, field) == 0 and int32_at(leaves, int32_at(paths, field)) < 0:
            return False
    return True


@compiled
def decide(event_tables: int, event: int, stamp: int, rules: int, count: int, handed: int, back: int) -> Any:
    """Append the touched rules that match, and hand back those that are not certain; return both new counts."""
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


CONFLICT: Final = 0
HOLDS: Final = 1
HAND_BACK: Final = 2

_SEVERAL: Final = -3
_MAX_FIELDS: Final = 63  # each field is one bit of a 64-bit word


@compiled
def can_meet_together(tables: int, event_tables: int, branch: int, stamp: int) -> Any:
    """Return HOLDS if leaves that are consistent in all arrays meet the fields of a branch, CONFLICT if there are none.

    Leaves are consistent if no two of them are in different elements of one array. Return HAND_BACK if compiled code
    cannot decide.
    """
    if int64_at(event_tables, JOINED_LEAVES) != 0:
        return HAND_BACK
    paths, offsets = int64_at(tables, t.FIELD_PATH), int64_at(tables, t.FIELD_OFFSET)
    can_be_absent = int64_at(tables, t.FIELD_MAY_BE_ABSENT)
    nested = int64_at(event_tables, PATH_NESTED)
    firsts = int64_at(tables, t.BRANCH_FIELDS_FIRST)
    first, stop = int32_at(firsts, branch), int32_at(firsts, branch + 1)
    inside, lacks, last_inside = 0, False, -1
    for field in range(first, stop):
        if int64_at(nested, int32_at(paths, field)) == stamp:
            inside += 1
            last_inside = field
            if byte_at(can_be_absent, field) != 0:
                lacks = True
    if inside == 0:
        return HOLDS
    if inside == 1:
        return HOLDS if _is_met_anywhere(tables, event_tables, last_inside, branch) else CONFLICT
    if lacks or stop - first > _MAX_FIELDS:
        return HAND_BACK
    done = _ZERO
    for field in range(first, stop):
        if int64_at(nested, int32_at(paths, field)) != stamp or (done >> np.uint64(field - first)) & _ONE != _ZERO:
            continue
        array = _array_of(tables, event_tables, int32_at(paths, field), int32_at(offsets, field), branch)
        if array == FREE:
            continue
        if array < 0:
            return HAND_BACK
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
        if not _reset_elements(tables, event_tables, int32_at(paths, field), sharing):
            return CONFLICT
    return HOLDS


@compiled
def _is_met_anywhere(tables: int, event_tables: int, field: int, branch: int) -> bool:
    """Return whether any leaf, in arrays or not, meets a field."""
    path = int32_at(int64_at(tables, t.FIELD_PATH), field)
    offset = int32_at(int64_at(tables, t.FIELD_OFFSET), field)
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if _is_bit_set(tables, int32_at(int64_at(event_tables, LEAF_ROW), leaf), offset, branch):
            return True
        leaf = int32_at(int64_at(event_tables, LEAF_NEXT), leaf)
    return False


@compiled
def _array_of(tables: int, event_tables: int, path: int, offset: int, branch: int) -> Any:
    """Return the array whose elements contain all leaves that meet a field, or FREE if such a leaf is in no element.

    Return _SEVERAL if the leaves are in several or nested arrays, or if there are none.
    """
    array = -1
    known = False
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if _is_bit_set(tables, int32_at(int64_at(event_tables, LEAF_ROW), leaf), offset, branch):
            here = int32_at(int64_at(event_tables, LEAF_ARRAY), leaf)
            if here == FREE:
                return FREE
            if here < 0 or (known and here != array):
                array = _SEVERAL
            elif not known:
                array = here
            known = True
        leaf = int32_at(int64_at(event_tables, LEAF_NEXT), leaf)
    return array if known else _SEVERAL


@compiled
def _count_elements(tables: int, event_tables: int, path: int, offset: int, branch: int, sharing: int) -> None:
    """Increment the count of each element that met the `sharing` fields before and meets this one."""
    counts = int64_at(event_tables, ELEMENT_COUNT)
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if _is_bit_set(tables, int32_at(int64_at(event_tables, LEAF_ROW), leaf), offset, branch):
            element = int32_at(int64_at(event_tables, LEAF_ELEMENT), leaf)
            if int32_at(counts, element) == sharing:
                put_int32(counts, element, sharing + 1)
        leaf = int32_at(int64_at(event_tables, LEAF_NEXT), leaf)


@compiled
def _reset_elements(tables: int, event_tables: int, path: int, sharing: int) -> bool:
    """Reset the counts of elements to 0; return whether one element met all `sharing` fields."""
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


@inlined
def _is_bit_set(tables: int, row: int, offset: int, branch: int) -> Any:
    position = (row + offset) * int64_at(tables, t.STRIDE) + int64_at(tables, t.SUMMARY_WORDS) + (branch >> 6)
    word = word_at(int64_at(tables, t.ROWS), position)
    return (word >> np.uint64(branch & 63)) & _ONE != _ZERO
