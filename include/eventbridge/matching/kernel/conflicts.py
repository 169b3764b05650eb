"""Array consistency for a branch that survived: its leaf lists must be met inside one element of each array."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.event_tables import (
    ELEMENT_COUNT,
    JOINED_LEAVES,
    LEAF_ARRAY,
    LEAF_ELEMENT,
    LEAF_NEXT,
    LEAF_ROW,
    PATH_FIRST_LEAF,
    PATH_NESTED,
)
from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.leaves import FREE
from eventbridge.matching.scan.memory import byte_at, int32_at, int64_at, put_int32, word_at

CONFLICT: Final = 0
HOLDS: Final = 1
HAND_BACK: Final = 2

_SEVERAL: Final = -3
_MOST_FIELDS: Final = 63  # a bit each in a word, which are shifted by one more at most
_ONE, _ZERO = np.uint64(1), np.uint64(0)


@compiled
def without_conflict(tables: int, event_tables: int, branch: int, stamp: int) -> Any:
    """Return whether leaves meet the fields of a branch without two of them in different elements of one array."""
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
        return HOLDS if _met_anywhere(tables, event_tables, last_inside, branch) else CONFLICT
    if lacks or stop - first > _MOST_FIELDS:
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
        if not _forget_elements(tables, event_tables, int32_at(paths, field), sharing):
            return CONFLICT
    return HOLDS


@compiled
def _met_anywhere(tables: int, event_tables: int, field: int, branch: int) -> bool:
    """Return whether a leaf, wherever it lies, meets a field."""
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
    """Return the array whose elements hold the leaves that meet a field; FREE if one is in none, else _SEVERAL."""
    array = -1
    known = False
    leaf = int32_at(int64_at(event_tables, PATH_FIRST_LEAF), path)
    while leaf >= 0:
        if _passes(tables, int32_at(int64_at(event_tables, LEAF_ROW), leaf), offset, branch):
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
    """Reset the counts to 0; return whether one of them covered all fields."""
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
def _passes(tables: int, row: int, offset: int, branch: int) -> Any:
    place = (row + offset) * int64_at(tables, t.STRIDE) + int64_at(tables, t.SUMMARY_WORDS) + (branch >> 6)
    word = word_at(int64_at(tables, t.ROWS), place)
    return (word >> np.uint64(branch & 63)) & _ONE != _ZERO
