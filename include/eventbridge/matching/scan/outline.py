r"""Finds the outline of an event, which is the positions of its tokens, 64 bytes at a time.

    {"id":"a\"b", "n": [12, true]}
    ^^  ^^^    ^^ ^ ^^ ^^ ^ ^   ^^      brackets, braces, commas, colons, both quotes of a string, and the first bytes
                                        of numbers and words

In a walk byte by byte, each step depends on the previous one: where a string begins is known only after the end of the
one before. Here a block is a few words of 64 bits, one bit per byte, and blocks hardly depend on each other. The walk
over the event (`leaves.scan`) then goes from token to token. The bits:

1. `escaped`: bytes after a backslash that is not escaped itself.
2. `string`: bytes from each opening quote up to its closing one; each bit is the xor of the bits of all quotes up to it
   (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", VLDB Journal 28, 2019, section 3.1).
3. `running`: bytes of numbers and words, that is bytes that are neither structural, space or quote nor in a string; the
   first byte of a number or word is a token.

The outline also checks what needs no walk: UTF-8, control characters, escapes, and that every string is closed.
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
"""The number of entries after an outline's tokens, each the end of the text, so that a walk may read ahead."""

_AT_ONCE: Final = 8
_BLOCK: Final = 64
_ZERO, _ONE, _TOP = np.uint64(0), np.uint64(1), np.uint64(63)
_ODD = np.uint64(0xAAAA_AAAA_AAAA_AAAA)
_FOUR = np.uint64(0b1111)


@inlined
def room_for_outline(length: int) -> int:
    """Return how many 64-bit integers to allocate for the outline of a text of this many bytes."""
    return length + BEHIND + _AT_ONCE


@compiled
def outline(text: int, begin: int, stop: int, into: int) -> Any:
    """Write the positions of a text's tokens to `into`; return their number, and the range that contains all escapes.

    The number is -1 if the text cannot be JSON. `into` is the address of `room_for_outline` integers of 64 bits.
    """
    count = 0
    first_escape, last_escape = stop, begin
    # The values that one block passes to the next. `inside`: all ones if the next block begins in a string. `escape`: 1
    # if its first byte is escaped. `run`: 1 if the byte before it belongs to a number or word. `following`: its first
    # bytes that continue a character.
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
            # This may write more positions than there are, so that the processor can predict the end of the loop. The
            # next positions overwrite the excess.
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
    """Return which bytes of a block are escaped, and 1 if the first byte of the next block is, else 0.

    A byte after an odd number of backslashes is escaped. The addition of a run's first bit to the run sets the bit
    after the run.
    """
    firsts = backslash & ~(backslash << _ONE)
    from_odd, from_even = backslash + (firsts & _ODD), backslash + (firsts & ~_ODD)
    escaped = (from_odd & ~_ODD | from_even & _ODD) & ~backslash
    # If an odd run reaches the end of the block, the sum overflows: the run begins at an odd bit, as 64 is even.
    return escaped | escape, _ONE if from_odd < backslash else _ZERO


@inlined
def _from_odd_to_even(marks: Any) -> Any:
    """Return a bit for each byte from each odd mark (the first, third ...) on until the next even one (excluded)."""
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
