"""From a leaf to its class: which conditions at its path it meets, found by look-ups, whatever their number.

A class is what all leaves have in common that meet the same conditions. Its key is what the look-ups found: the entry
that equals the leaf, the longest entry it begins with, the interval of the line it falls into, and so on, each a
number. The key leads to the class's rows, one for each column of the path: a bit for every branch, set unless the
leaf rules the branch out. A class seen for the first time has its rows made here, from the lists of what each atom
(one primitive test) does to them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.addresses import parse_address
from eventbridge.matching.kernel.classes import class_of_key
from eventbridge.matching.kernel.entries import find_beginning, find_end, find_whole
from eventbridge.matching.kernel.folding import fold
from eventbridge.matching.kernel.lines import address_interval, number_interval
from eventbridge.matching.kernel.texts import find_texts
from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.leaves import ESCAPED, NUMBER, STRING
from eventbridge.matching.scan.memory import int32_at, int64_at, load64, low_bytes, put_int32, put_word, word_at
from eventbridge.matching.scan.strings import unescape

_ONE, _ZERO = np.uint64(1), np.uint64(0)
_UPPER = np.uint64(0xFFFF_FFFF_0000_0000)
_MIX_ONE, _MIX_TWO = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xC2B2_AE3D_27D4_EB4F)
_MIX_THREE, _MIX_FOUR = np.uint64(0x1656_67B1_9E37_79F9), np.uint64(0x85EB_CA77_C2B2_AE63)

_PAYS_NOT: Final = -32
"""The score of a path, hits less misses, below which values are not looked for; the 64 below it count values."""


@inlined
def class_of(
    tables: int,
    path: int,
    kind: int,
    text: int,
    position: int,
    length: int,
    regexes: int,
    first_regex: int,
    regex_count: int,
    plain: int,
    folded: int,
) -> Any:
    """Return the row of a leaf's class for the path's first column, or NO_ROOM.

    `regexes` are the atoms of regular expressions that the leaf meets; `plain` and `folded` room for the string
    without escapes and case-folded (three times as long).

    Most fields of events have few values. So a short value is looked for first among those seen lately, by its very
    bytes: a line of MEMORY is 0: path, kind and length, 1: row and how often classes had been cleared, 2-5: the bytes.
    Where values hardly ever come again this is given up (MEMORY_SCORE), but for one value in 64.
    """
    if kind == ESCAPED or length > t.MEMORY_BYTES:
        return class_by_lookups(
            tables, path, kind, text, position, length, regexes, first_regex, regex_count, plain, folded
        )
    scores = int64_at(tables, t.MEMORY_SCORE)
    score = int32_at(scores, path)
    if score < _PAYS_NOT:
        put_int32(scores, path, score + 1 if score < _PAYS_NOT - 1 else _PAYS_NOT - 65)
        if score != _PAYS_NOT - 1:
            return class_by_lookups(
                tables, path, kind, text, position, length, regexes, first_regex, regex_count, plain, folded
            )
        score = _PAYS_NOT
    name = (np.uint64(path * 8 + kind) << np.uint64(8)) | np.uint64(length)
    one = low_bytes(load64(text, position), min(length, 8))
    two = low_bytes(load64(text, position + 8), min(max(length - 8, 0), 8))
    three = low_bytes(load64(text, position + 16), min(max(length - 16, 0), 8))
    four = low_bytes(load64(text, position + 24), min(max(length - 24, 0), 8))
    mixed = (one ^ name) * _MIX_ONE ^ two * _MIX_TWO ^ three * _MIX_THREE ^ four * _MIX_FOUR
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MIX_ONE
    line = int64_at(tables, t.MEMORY) + 64 * (np.int64(mixed >> np.uint64(40)) & int64_at(tables, t.MEMORY_MASK))
    clears = np.uint64(int64_at(int64_at(tables, t.COUNTERS), t.COUNTER_CLEARS)) << np.uint64(32)
    row_word = word_at(line, 1)
    if (
        word_at(line, 0) == name
        and word_at(line, 2) == one
        and word_at(line, 3) == two
        and word_at(line, 4) == three
        and word_at(line, 5) == four
        and row_word & _UPPER == clears
    ):
        put_int32(scores, path, min(score + 1, 32))
        return np.int64(row_word & ~_UPPER)
    put_int32(scores, path, score - 1 if score > _PAYS_NOT else _PAYS_NOT - 65)
    row = class_by_lookups(tables, path, kind, text, position, length, regexes, first_regex, regex_count, plain, folded)
    if row >= 0:
        put_word(line, 0, name)
        put_word(line, 1, clears | np.uint64(row))
        put_word(line, 2, one)
        put_word(line, 3, two)
        put_word(line, 4, three)
        put_word(line, 5, four)
    return row


@compiled
def class_by_lookups(
    tables: int,
    path: int,
    kind: int,
    text: int,
    position: int,
    length: int,
    regexes: int,
    first_regex: int,
    regex_count: int,
    plain: int,
    folded: int,
) -> Any:
    """Return what `class_of` does, without a look at the values seen lately."""
    key = int64_at(tables, t.KEY)
    put_int32(key, 0, path * 8 + kind)
    size = 1
    if kind == NUMBER:
        line = int32_at(int64_at(tables, t.PATH_NUMBERS), path)
        if line >= 0:
            put_int32(key, 1, number_interval(tables, line, text, position, length, plain) | t.KEY_INTERVAL)
            size = 2
    elif kind >= STRING:
        if kind == ESCAPED:
            length = unescape(text, position, length, plain)
            text, position = plain, 0
            put_int32(key, 0, path * 8 + STRING)
        lookups = int32_at(int64_at(tables, t.PATH_LOOKUPS), path)
        paths = int64_at(tables, t.PATHS)
        if lookups & t.LOOKUP_EXACT:
            entry = find_whole(tables, t.EXACT * paths + path, text, position, length)
            if entry >= 0:
                put_int32(key, size, entry)
                size += 1
        if lookups & t.LOOKUP_BEGIN:
            entry = find_beginning(tables, t.BEGIN * paths + path, text, position, length)
            if entry >= 0:
                put_int32(key, size, entry)
                size += 1
        if lookups & t.LOOKUP_FINISH:
            entry = find_end(tables, t.FINISH * paths + path, text, position, length)
            if entry >= 0:
                put_int32(key, size, entry)
                size += 1
        if lookups & t.LOOKUP_ANY_FOLDED:
            long = fold(tables, text, position, length, folded)
            if lookups & t.LOOKUP_FOLDED:
                entry = find_whole(tables, t.FOLDED * paths + path, folded, 0, long)
                if entry >= 0:
                    put_int32(key, size, entry)
                    size += 1
            if lookups & t.LOOKUP_FOLDED_BEGIN:
                entry = find_beginning(tables, t.FOLDED_BEGIN * paths + path, folded, 0, long)
                if entry >= 0:
                    put_int32(key, size, entry)
                    size += 1
            if lookups & t.LOOKUP_FOLDED_FINISH:
                entry = find_end(tables, t.FOLDED_FINISH * paths + path, folded, 0, long)
                if entry >= 0:
                    put_int32(key, size, entry)
                    size += 1
        if lookups & t.LOOKUP_ADDRESS:
            good, high, low = parse_address(text, position, length)
            if good:
                line = int32_at(int64_at(tables, t.PATH_ADDRESSES), path)
                put_int32(key, size, address_interval(tables, line, high, low) | t.KEY_INTERVAL)
                size += 1
        if lookups & t.LOOKUP_TEXT:
            size = find_texts(tables, path, text, position, length, key, size)
        for index in range(first_regex, first_regex + regex_count):
            put_int32(key, size, int32_at(regexes, index) | t.KEY_ATOM)
            size += 1
    return class_of_key(tables, path, kind, size)
