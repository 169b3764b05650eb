"""Classes: what their keys lead to, and how the rows of a new one are made.

Invariants: a row depends on the leaf and the rules alone, never on the classes made before; rows, keys and slots are
of fixed size, and when one is full all classes are dropped (`clear`) and the event is begun again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.kernel.hashing import grow, slot_of
from eventbridge.matching.kernel.lines import stab
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.leaves import NUMBER, STRING
from eventbridge.matching.scan.memory import int32_at, int64_at, put_int32, put_word, word_at

NO_ROOM: Final = -1
"""There is no room for another class: clear, and begin the event again."""

_ONE, _ZERO = np.uint64(1), np.uint64(0)


@compiled
def class_of_key(tables: int, path: int, kind: int, size: int) -> Any:
    """Return the row of the class whose key was written, made now if it is new; NO_ROOM if there is none for it."""
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
    """Drop all classes but those that every rule set has: of having no leaf, of lacking one."""
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
    """Write the atoms that the leaf meets, each once, into ATOMS; return how many."""
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

    A row begins as all branches but those that a leaf must earn: what is left are the branches without a leaf list in
    this column, those with `exists`, those with an `anything-but`. Then the atoms break `anything-but`s, complete
    `all`s, and set their own bits, in this order: a bit that is taken away by one condition of a leaf list may be
    given back by another.
    """
    stride = int64_at(tables, t.STRIDE)
    rows, atoms = int64_at(tables, t.ROWS), int64_at(tables, t.ATOMS)
    first_column, summary_words = int32_at(int64_at(tables, t.PATH_COLUMN), path), int64_at(tables, t.SUMMARY_WORDS)
    for offset in range(width):
        start = rows + 8 * (row + offset) * stride
        for index in range(stride):
            put_word(start, index, word_at(rows, t.ROW_OF_ALL * stride + index))
        firsts, taken = int64_at(tables, t.TAKEN_FIRST), int64_at(tables, t.TAKEN_BITS)
        for place in range(int32_at(firsts, first_column + offset), int32_at(firsts, first_column + offset + 1)):
            word = summary_words + int32_at(int64_at(tables, t.TAKEN_WORD), place)
            put_word(start, word, word_at(start, word) & ~word_at(taken, place))
    counters = int64_at(tables, t.COUNTERS)
    stamp = int64_at(counters, t.COUNTER_STAMP) + 1
    put_word(counters, t.COUNTER_STAMP, np.uint64(stamp))
    denial_stamp = int64_at(tables, t.DENIAL_STAMP)
    for index in range(atom_count):
        atom = int32_at(atoms, index)
        firsts = int64_at(tables, t.ATOM_DENIALS_FIRST)
        for place in range(int32_at(firsts, atom), int32_at(firsts, atom + 1)):
            denial = int32_at(int64_at(tables, t.ATOM_DENIALS), place)
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
    """Set the bits of every `all` whose atoms are all there and whose `anything-but`s are unbroken."""
    atoms, touched = int64_at(tables, t.ATOMS), int64_at(tables, t.TOUCHED)
    stamps, seen = int64_at(tables, t.CONJUNCTION_STAMP), int64_at(tables, t.CONJUNCTION_SEEN)
    firsts, conjunctions = int64_at(tables, t.ATOM_CONJUNCTIONS_FIRST), int64_at(tables, t.ATOM_CONJUNCTIONS)
    count = 0
    for index in range(atom_count):
        atom = int32_at(atoms, index)
        for place in range(int32_at(firsts, atom), int32_at(firsts, atom + 1)):
            conjunction = int32_at(conjunctions, place)
            if int64_at(stamps, conjunction) != stamp:
                put_word(stamps, conjunction, np.uint64(stamp))
                put_int32(seen, conjunction, 0)
                put_int32(touched, count, conjunction)
                count += 1
            put_int32(seen, conjunction, int32_at(seen, conjunction) + 1)
    for index in range(count):
        conjunction = int32_at(touched, index)
        if int32_at(seen, conjunction) == int32_at(int64_at(tables, t.CONJUNCTION_NEED), conjunction):
            _complete(tables, row, conjunction, stamp)
    always = int64_at(tables, t.PATH_ALWAYS_FIRST)
    for place in range(int32_at(always, path), int32_at(always, path + 1)):
        _complete(tables, row, int32_at(int64_at(tables, t.ALWAYS), place), stamp)


@compiled
def _complete(tables: int, row: int, conjunction: int, stamp: int) -> None:
    firsts, denials = int64_at(tables, t.CONJUNCTION_DENIALS_FIRST), int64_at(tables, t.CONJUNCTION_DENIALS)
    for place in range(int32_at(firsts, conjunction), int32_at(firsts, conjunction + 1)):
        if int64_at(int64_at(tables, t.DENIAL_STAMP), int32_at(denials, place)) == stamp:
            return
    _set_bits(tables, row, t.CONJUNCTION_BITS_FIRST, t.CONJUNCTION_BITS, conjunction)


@compiled
def _set_bits(tables: int, row: int, first_name: int, bits_name: int, number: int) -> None:
    start = int64_at(tables, t.ROWS) + 8 * (row * int64_at(tables, t.STRIDE) + int64_at(tables, t.SUMMARY_WORDS))
    firsts, bits = int64_at(tables, first_name), int64_at(tables, bits_name)
    for place in range(int32_at(firsts, number), int32_at(firsts, number + 1)):
        bit = int32_at(bits, place)
        put_word(start, bit >> 6, word_at(start, bit >> 6) | (_ONE << np.uint64(bit & 63)))


@compiled
def _clear_bits(tables: int, row: int, denial: int) -> None:
    start = int64_at(tables, t.ROWS) + 8 * (row * int64_at(tables, t.STRIDE) + int64_at(tables, t.SUMMARY_WORDS))
    firsts, bits = int64_at(tables, t.DENIAL_BITS_FIRST), int64_at(tables, t.DENIAL_BITS)
    for place in range(int32_at(firsts, denial), int32_at(firsts, denial + 1)):
        bit = int32_at(bits, place)
        put_word(start, bit >> 6, word_at(start, bit >> 6) & ~(_ONE << np.uint64(bit & 63)))


@compiled
def summarise(row: int, words: int, summary: int) -> None:
    """Write a row's summary: bit w is set if word w is not 0."""
    for first in range(0, words, 64):
        bits = _ZERO
        for word in range(first, min(first + 64, words)):
            if word_at(row, word) != _ZERO:
                bits |= _ONE << np.uint64(word - first)
        put_word(summary, first >> 6, bits)
