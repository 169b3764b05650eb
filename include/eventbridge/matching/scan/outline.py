r"""The outline of an event: the positions of its tokens, found 64 bytes at a time without interpreting them.

    {"id":"a\"b", "n": [12, true]}
    ^^  ^^^    ^^ ^ ^^ ^^ ^ ^   ^^      brackets, braces, commas, colons, both quotes of a string, and the first bytes
                                        of numbers and words

In a walk byte by byte, each step waits for the previous one: the begin of a string is known only once the last one has
ended. Here a block is a few words of 64 bits, one bit per byte, and blocks hardly depend on each other; the walk over
the event (`leaves.scan`) then goes from token to token. The bits:

1. `escaped`: bytes after a backslash that is not escaped itself.
2. `string`: from each opening quote up to its closing one, the xor of all quotes before (Langdale and Lemire, "Parsing
   Gigabytes of JSON per Second", VLDB Journal 28, 2019, section 3.1).
3. `running`: bytes that are neither structural, space, quote nor in a string belong to a number or word; its first
   byte is a token.

Checks that need no walk are made here: UTF-8, control characters, escapes, and that every string is closed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.marks import (
    backslashes,
    beyond_ascii,
    controls,
    controls_or_spaces,
    doubtful_firsts,
    escape_letters,
    first_of_four,
    first_of_many,
    first_of_three,
    hexadecimal_marks,
    letters_u,
    quotes,
    structurals,
)
from eventbridge.matching.scan.memory import bits_in, byte_at, lowest_bit, lowest_bit_or_64, put_int64
from eventbridge.matching.scan.strings import character_size

BEHIND: Final = 8
"""Entries that follow those of an outline, each the end of the text: a walk may look so far ahead."""

_AT_ONCE: Final = 8
_BLOCK: Final = 64
_ZERO, _ONE, _TOP = np.uint64(0), np.uint64(1), np.uint64(63)
_ODD = np.uint64(0xAAAA_AAAA_AAAA_AAAA)
_FOUR = np.uint64(0b1111)


@inlined
def room_for_outline(length: int) -> int:
    """Return the maximum number of 64-bit integers in the outline of a text of this many bytes."""
    return length + BEHIND + _AT_ONCE


@compiled
def outline(text: int, begin: int, stop: int, into: int) -> Any:
    """Write the positions of a text's tokens to `into`; return how many, and between which positions escapes may be.

    The number is -1 if the text cannot be JSON. `into` is the address of room for `room_for_outline` integers of
    64 bits.
    """
    count = 0
    first_escape, last_escape = stop, begin
    # What one block hands to the next: all ones if it begins in a string; 1 if its first byte is escaped, and if the
    # byte before it belongs to a number or word; the bytes from its first one on that a character still needs.
    inside, escape, run, following = _ZERO, _ZERO, _ZERO, _ZERO
    for block in range(begin, stop, _BLOCK):
        quote = quotes(text, block)
        backslash = backslashes(text, block)
        control = controls(text, block)
        space = controls_or_spaces(text, block)
        structural = structurals(text, block)
        there = ~_ZERO
        if stop - block < _BLOCK:
            there = (_ONE << np.uint64(stop - block)) - _ONE
            quote &= there
            backslash &= there
            control &= there
            structural &= there
            space |= ~there
        if backslash | escape != _ZERO:
            last_escape = block + _BLOCK
            if first_escape == stop:
                first_escape = block - 1
            escaped, escape = _find_escaped(backslash & ~escape, escape)
            quote &= ~escaped
            if not _are_escapes(text, block, escaped):
                return -1, begin, stop
        beyond = beyond_ascii(text, block) & there
        if beyond | following != _ZERO:
            first = first_of_many(text, block) & there
            third, fourth = first_of_three(text, block) & there, first_of_four(text, block) & there
            following |= first << _ONE | third << np.uint64(2) | fourth << np.uint64(3)
            if following != beyond & ~first:
                return -1, begin, stop
            following = first >> _TOP | third >> np.uint64(62) | fourth >> np.uint64(61)
            if not _are_characters(text, block, doubtful_firsts(text, block) & there, stop):
                return -1, begin, stop
        string = _from_odd_to_even(quote) ^ inside
        inside = _ZERO - (string >> _TOP)
        if control != _ZERO and (control & string != _ZERO or not _are_spaces(text, block, control)):
            return -1, begin, stop
        running = ~(string | structural | space | quote)
        tokens = (structural & ~string) | quote | (running & ~(running << _ONE | run))
        run = running >> _TOP
        found = bits_in(tokens)
        for done in range(count, count + found, _AT_ONCE):
            # more than there are, perhaps, so that the loop's end can be foreseen; the next ones write over them
            for number in range(done, done + _AT_ONCE):
                put_int64(into, number, block + lowest_bit_or_64(tokens))
                tokens &= tokens - _ONE
        count += found
    if inside | following != _ZERO:
        return -1, begin, stop
    for number in range(count, count + BEHIND):
        put_int64(into, number, stop)
    return count, first_escape, last_escape


@inlined
def _find_escaped(backslash: Any, escape: Any) -> Any:
    """Return which bytes of a block are escaped, and 1 if the first one of the next block is; 0 if not.

    A byte behind an odd run of backslashes is: to add the bit of a run's beginning to the run sets the bit behind it.
    """
    firsts = backslash & ~(backslash << _ONE)
    from_odd, from_even = backslash + (firsts & _ODD), backslash + (firsts & ~_ODD)
    escaped = (from_odd & ~_ODD | from_even & _ODD) & ~backslash
    # A run up to the end of the block, which has an even number of bytes, has left the word.
    return escaped | escape, _ONE if from_odd < backslash else _ZERO


@inlined
def _from_odd_to_even(marks: Any) -> Any:
    """Return a bit for each byte from the first, third, fifth ... mark on and before the second, fourth, sixth ..."""
    marks ^= marks << _ONE
    marks ^= marks << np.uint64(2)
    marks ^= marks << np.uint64(4)
    marks ^= marks << np.uint64(8)
    marks ^= marks << np.uint64(16)
    return marks ^ (marks << np.uint64(32))


@inlined
def _are_escapes(text: int, block: int, escaped: Any) -> bool:
    """Return whether RFC 8259 allows the escaped bytes of a block."""
    if escaped & ~escape_letters(text, block) != _ZERO:
        return False
    escaped &= letters_u(text, block)
    while escaped != _ZERO:
        if hexadecimal_marks(text, block + lowest_bit(escaped) + 1) & _FOUR != _FOUR:
            return False
        escaped &= escaped - _ONE
    return True


@compiled
def _are_characters(text: int, block: int, firsts: Any, stop: int) -> bool:
    """Return whether each marked byte of a block begins a character of UTF-8."""
    while firsts != _ZERO:
        if character_size(text, block + lowest_bit(firsts), stop) == 0:
            return False
        firsts &= firsts - _ONE
    return True


@compiled
def _are_spaces(text: int, block: int, control: Any) -> bool:
    """Return whether the marked control characters of a block are white space."""
    while control != _ZERO:
        byte = byte_at(text, block + lowest_bit(control))
        if byte != 10 and byte != 13 and byte != 9:
            return False
        control &= control - _ONE
    return True
