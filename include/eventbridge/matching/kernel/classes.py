"""Looks up the class of a leaf by its key, and makes the rows of a new class.

Invariants: a row depends only on the leaf and the rules, never on earlier classes. The tables of rows, keys and slots
have a fixed size: when one is full, all classes are dropped (`clear`) and the current event is started again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.addresses import parse_address
from eventbridge.matching.kernel.entries import find_beginning, find_end, find_whole
from eventbridge.matching.kernel.folding import fold
from eventbridge.matching.kernel.hashing import grow, slot_of
from eventbridge.matching.kernel.lines import address_interval, number_interval, stab
from eventbridge.matching.kernel.texts import find_texts
from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.leaves import ESCAPED, NUMBER, STRING
from eventbridge.matching.scan.memory import int32_at, int64_at, load64, low_bytes, put_int32, put_word, word_at
from eventbridge.matching.scan.strings import unescape

NO_ROOM: Final = -1
"""There is no room for another class: the caller must drop all classes and start the event again."""

_ONE, _ZERO = np.uint64(1), np.uint64(0)


@compiled
def class_of_key(tables: int, path: int, kind: int, size: int) -> Any:
    """Return the first row of the class whose key is in KEY, which is created if new; NO_ROOM if a table is full."""
    key = int64_at(tables, t.KEY)
    value = np.uint64(size)
    for index in range(size):
        value = grow(value, int32_at(key, index))
        value ^= value >> np.uint64(27)
    mask = int64_at(tables, t.CLASS_SLOT_MASK)
    slots, firsts = int64_at(tables, t.CLASS_SLOTS), int64_at(tables, t.CLASS_KEY_FIRST)
    keys, rows = int64_at(tables, t.CLASS_KEYS), int64_at(tables, t.CLASS_ROW)
    slot = slot_of(value, 0, mask)
    while True:
        number = int32_at(slots, slot) - 1
        if number < 0:
            break
        first = int32_at(firsts, number)
        if int32_at(firsts, number + 1) - first == size:
            same = True
            for index in range(size):
                if int32_at(keys, first + index) != int32_at(key, index):
                    same = False
                    break
            if same:
                return int32_at(rows, number)
        slot = (slot + 1) & mask
    counters = int64_at(tables, t.COUNTERS)
    number = int64_at(counters, t.COUNTER_CLASSES)
    row = int64_at(counters, t.COUNTER_ROWS)
    first = int64_at(counters, t.COUNTER_KEYS)
    width = int32_at(int64_at(tables, t.PATH_WIDTH), path)
    if row + width > int64_at(tables, t.CLASS_CAPACITY) or first + size > int64_at(tables, t.CLASS_KEYS_CAPACITY):
        return NO_ROOM
    for index in range(size):
        put_int32(keys, first + index, int32_at(key, index))
    put_int32(firsts, number, first)
    put_int32(firsts, number + 1, first + size)
    put_int32(rows, number, row)
    put_int32(slots, slot, number + 1)
    put_word(counters, t.COUNTER_CLASSES, np.uint64(number + 1))
    put_word(counters, t.COUNTER_ROWS, np.uint64(row + width))
    put_word(counters, t.COUNTER_KEYS, np.uint64(first + size))
    _make_rows(tables, path, kind, row, width, _atoms_of_key(tables, path, kind, size))
    return row


@compiled
def clear(tables: int) -> None:
    """Drop all classes except those with fixed rows, such as PATH_ABSENT and PATH_LACKING."""
    counters = int64_at(tables, t.COUNTERS)
    slots = int64_at(tables, t.CLASS_SLOTS)
    for slot in range(int64_at(tables, t.CLASS_SLOT_MASK) + 1):
        put_int32(slots, slot, 0)
    put_word(counters, t.COUNTER_CLASSES, _ZERO)
    put_word(counters, t.COUNTER_KEYS, _ZERO)
    put_word(counters, t.COUNTER_ROWS, np.uint64(int64_at(counters, t.COUNTER_FIXED_ROWS)))
    put_word(counters, t.COUNTER_CLEARS, np.uint64(int64_at(counters, t.COUNTER_CLEARS) + 1))


@compiled
def _atoms_of_key(tables: int, path: int, kind: int, size: int) -> Any:
    """Write each atom that the leaf meets into ATOMS once; return their number."""
    key, atoms = int64_at(tables, t.KEY), int64_at(tables, t.ATOMS)
    count = 0
    atom = int32_at(int64_at(tables, t.PATH_STRING_ATOM), path) if kind >= STRING else -1
    if kind < NUMBER:
        atom = int32_at(int64_at(tables, t.PATH_WORDS_ATOM), path * 3 + kind)
    if atom >= 0:
        put_int32(atoms, 0, atom)
        count = 1
    for index in range(1, size):
        part = int32_at(key, index)
        if part & t.KEY_ATOM:
            put_int32(atoms, count, part & ~t.KEY_ATOM)
            count += 1
        elif part & t.KEY_INTERVAL:
            name = t.PATH_NUMBERS if kind == NUMBER else t.PATH_ADDRESSES
            count = stab(tables, int32_at(int64_at(tables, name), path), part & ~t.KEY_INTERVAL, atoms, count)
        else:
            while part >= 0:
                put_int32(atoms, count, int32_at(int64_at(tables, t.ENTRY_ATOM), part))
                count += 1
                part = int32_at(int64_at(tables, t.ENTRY_PARENT), part)
    return count


@compiled
def _make_rows(tables: int, path: int, kind: int, row: int, width: int, atom_count: int) -> None:
    """Fill the rows of a new class and their summaries.

    Initially a row has the bits of all branches without a leaf list in this column, and of those whose leaf list any
    leaf can meet, through `exists` or `anything-but`. Then the atoms violate `anything-but` conditions, complete `all`
    conditions, and set their own bits. The order matters: a bit that one condition of a leaf list clears may be set
    again by another.
    """
    stride = int64_at(tables, t.STRIDE)
    rows, atoms = int64_at(tables, t.ROWS), int64_at(tables, t.ATOMS)
    first_column, summary_words = int32_at(int64_at(tables, t.PATH_COLUMN), path), int64_at(tables, t.SUMMARY_WORDS)
    for offset in range(width):
        start = rows + 8 * (row + offset) * stride
        for index in range(stride):
            put_word(start, index, word_at(rows, t.ROW_OF_ALL * stride + index))
        firsts, taken = int64_at(tables, t.TAKEN_FIRST), int64_at(tables, t.TAKEN_BITS)
        for position in range(int32_at(firsts, first_column + offset), int32_at(firsts, first_column + offset + 1)):
            word = summary_words + int32_at(int64_at(tables, t.TAKEN_WORD), position)
            put_word(start, word, word_at(start, word) & ~word_at(taken, position))
    counters = int64_at(tables, t.COUNTERS)
    stamp = int64_at(counters, t.COUNTER_STAMP) + 1
    put_word(counters, t.COUNTER_STAMP, np.uint64(stamp))
    denial_stamp = int64_at(tables, t.DENIAL_STAMP)
    for index in range(atom_count):
        atom = int32_at(atoms, index)
        firsts = int64_at(tables, t.ATOM_DENIALS_FIRST)
        for position in range(int32_at(firsts, atom), int32_at(firsts, atom + 1)):
            denial = int32_at(int64_at(tables, t.ATOM_DENIALS), position)
            if int64_at(denial_stamp, denial) != stamp:
                put_word(denial_stamp, denial, np.uint64(stamp))
                _clear_bits(tables, row, denial)
    _complete_conjunctions(tables, path, row, atom_count, stamp)
    for index in range(atom_count):
        _set_bits(tables, row, t.ATOM_BITS_FIRST, t.ATOM_BITS, int32_at(atoms, index))
    words = int64_at(tables, t.WORDS)
    for number in range(row, row + width):
        start = rows + 8 * number * stride
        summarise(start + 8 * summary_words, words, start)


@compiled
def _complete_conjunctions(tables: int, path: int, row: int, atom_count: int, stamp: int) -> None:
    """Set the bits of each `all` whose atoms are all present and whose `anything-but` conditions hold."""
    atoms, touched = int64_at(tables, t.ATOMS), int64_at(tables, t.TOUCHED)
    stamps, seen = int64_at(tables, t.CONJUNCTION_STAMP), int64_at(tables, t.CONJUNCTION_SEEN)
    firsts, conjunctions = int64_at(tables, t.ATOM_CONJUNCTIONS_FIRST), int64_at(tables, t.ATOM_CONJUNCTIONS)
    count = 0
    for index in range(atom_count):
        atom = int32_at(atoms, index)
        for position in range(int32_at(firsts, atom), int32_at(firsts, atom + 1)):
            conjunction = int32_at(conjunctions, position)
            if int64_at(stamps, conjunction) != stamp:
                put_word(stamps, conjunction, np.uint64(stamp))
                put_int32(seen, conjunction, 0)
                put_int32(touched, count, conjunction)
                count += 1
            put_int32(seen, conjunction, int32_at(seen, conjunction) + 1)
    for index in range(count):
        conjunction = int32_at(touched, index)
        if int32_at(seen, conjunction) == int32_at(int64_at(tables, t.CONJUNCTION_NEED), conjunction):
            _complete_conjunction(tables, row, conjunction, stamp)
    always = int64_at(tables, t.PATH_ALWAYS_FIRST)
    for position in range(int32_at(always, path), int32_at(always, path + 1)):
        _complete_conjunction(tables, row, int32_at(int64_at(tables, t.ALWAYS), position), stamp)


@compiled
def _complete_conjunction(tables: int, row: int, conjunction: int, stamp: int) -> None:
    firsts, denials = int64_at(tables, t.CONJUNCTION_DENIALS_FIRST), int64_at(tables, t.CONJUNCTION_DENIALS)
    for position in range(int32_at(firsts, conjunction), int32_at(firsts, conjunction + 1)):
        if int64_at(int64_at(tables, t.DENIAL_STAMP), int32_at(denials, position)) == stamp:
            return
    _set_bits(tables, row, t.CONJUNCTION_BITS_FIRST, t.CONJUNCTION_BITS, conjunction)


@compiled
def _set_bits(tables: int, row: int, first_name: int, bits_name: int, number: int) -> None:
    start = int64_at(tables, t.ROWS) + 8 * (row * int64_at(tables, t.STRIDE) + int64_at(tables, t.SUMMARY_WORDS))
    firsts, bits = int64_at(tables, first_name), int64_at(tables, bits_name)
    for position in range(int32_at(firsts, number), int32_at(firsts, number + 1)):
        bit = int32_at(bits, position)
        put_word(start, bit >> 6, word_at(start, bit >> 6) | (_ONE << np.uint64(bit & 63)))


@compiled
def _clear_bits(tables: int, row: int, denial: int) -> None:
    start = int64_at(tables, t.ROWS) + 8 * (row * int64_at(tables, t.STRIDE) + int64_at(tables, t.SUMMARY_WORDS))
    firsts, bits = int64_at(tables, t.DENIAL_BITS_FIRST), int64_at(tables, t.DENIAL_BITS)
    for position in range(int32_at(firsts, denial), int32_at(firsts, denial + 1)):
        bit = int32_at(bits, position)
        put_word(start, bit >> 6, word_at(start, bit >> 6) & ~(_ONE << np.uint64(bit & 63)))


@compiled
def summarise(row: int, words: int, summary: int) -> None:
    """Write a row's summary, in which bit w is set if word w of the row is not 0."""
    for first in range(0, words, 64):
        bits = _ZERO
        for word in range(first, min(first + 64, words)):
            if word_at(row, word) != _ZERO:
                bits |= _ONE << np.uint64(word - first)
        put_word(summary, first >> 6, bits)


_UPPER = np.uint64(0xFFFF_FFFF_0000_0000)
_MIX_ONE, _MIX_TWO = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xC2B2_AE3D_27D4_EB4F)
_MIX_THREE, _MIX_FOUR = np.uint64(0x1656_67B1_9E37_79F9), np.uint64(0x85EB_CA77_C2B2_AE63)

_MIN_SCORE: Final = -32
"""The score of a path (hits minus misses) below which MEMORY is not used; the 65 scores below it count values."""


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

    `regexes` is the address of those regular-expression atoms that the leaf meets. `plain` and `folded` are addresses
    of room for the string without escapes, and case-folded (three times as long).

    Most fields of events have few distinct values. So MEMORY caches the rows of recent short values by their bytes. The
    words of a line are 0: path, kind and length; 1: row, and the number of clears at that time; 2 to 5: the bytes. At a
    path whose values rarely recur (MEMORY_SCORE), the cache is used for one value in 65 only.
    """
    if kind == ESCAPED or length > t.MEMORY_BYTES:
        return class_by_lookups(
            tables, path, kind, text, position, length, regexes, first_regex, regex_count, plain, folded
        )
    scores = int64_at(tables, t.MEMORY_SCORE)
    score = int32_at(scores, path)
    if score < _MIN_SCORE:
        put_int32(scores, path, score + 1 if score < _MIN_SCORE - 1 else _MIN_SCORE - 65)
        if score != _MIN_SCORE - 1:
            return class_by_lookups(
                tables, path, kind, text, position, length, regexes, first_regex, regex_count, plain, folded
            )
        score = _MIN_SCORE
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
    put_int32(scores, path, score - 1 if score > _MIN_SCORE else _MIN_SCORE - 65)
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
    """Return what `class_of` returns, without the cache of recent values."""
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
