"""The escapes of JSON strings, and the encoding and validation of UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.marks import string_marks
from eventbridge.matching.scan.memory import byte_at, lowest_bit, put_byte

_BACKSLASH, _U = ord("\\"), ord("u")
_ZERO = np.uint64(0)


@compiled
def has_escape(text: int, position: int, end: int) -> Any:
    """Return whether the content of a valid string contains a backslash."""
    while position < end:
        marks = string_marks(text, position)
        if marks != _ZERO:
            return position + lowest_bit(marks) < end
        position += 32
    return False


@compiled
def unescaped(letter: int) -> int:
    """Return the byte that an escape of one letter stands for, or 0 if the letter is none of these."""
    if letter == 0x22 or letter == 0x5C or letter == 0x2F:  # " \ /
        return letter
    if letter == 0x62:  # b
        return 8
    if letter == 0x66:  # f
        return 12
    if letter == 0x6E:  # n
        return 10
    if letter == 0x72:  # r
        return 13
    if letter == 0x74:  # t
        return 9
    return 0


@compiled
def hex_value(letter: int) -> int:
    """Return the value of a hexadecimal digit, or -1 for any other byte."""
    if 48 <= letter <= 57:
        return letter - 48
    letter |= 32
    if 97 <= letter <= 102:
        return letter - 87
    return -1


@compiled
def unescape(text: int, position: int, length: int, into: int) -> int:
    """Write the content of a valid JSON string into `into` without escapes; return the number of bytes written.

    `into` must have room for `length` bytes: no escape is shorter than its character. A lone surrogate becomes the
    three bytes that Python's error handler `surrogatepass` encodes it to, so that it equals only itself.
    """
    stop, written = position + length, 0
    while position < stop:
        byte = byte_at(text, position)
        if byte != _BACKSLASH:
            put_byte(into, written, byte)
            written += 1
            position += 1
        elif byte_at(text, position + 1) != _U:
            put_byte(into, written, unescaped(byte_at(text, position + 1)))
            written += 1
            position += 2
        else:
            character = _four_digits(text, position + 2)
            position += 6
            if 0xD800 <= character < 0xDC00 and position + 6 <= stop:
                if byte_at(text, position) == _BACKSLASH and byte_at(text, position + 1) == _U:
                    low = _four_digits(text, position + 2)
                    if 0xDC00 <= low < 0xE000:
                        character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00)
                        position += 6
            written = put_character(into, written, character)
    return written


@compiled
def _four_digits(text: int, position: int) -> int:
    value = 0
    for index in range(position, position + 4):
        value = value * 16 + hex_value(byte_at(text, index))
    return value


@compiled
def put_character(into: int, written: int, character: int) -> int:
    """Write a code point as UTF-8 at `written`; return the position after it."""
    if character < 0x80:
        put_byte(into, written, character)
        return written + 1
    if character < 0x800:
        put_byte(into, written, 0xC0 | character >> 6)
        put_byte(into, written + 1, 0x80 | character & 63)
        return written + 2
    if character < 0x10000:
        put_byte(into, written, 0xE0 | character >> 12)
        put_byte(into, written + 1, 0x80 | character >> 6 & 63)
        put_byte(into, written + 2, 0x80 | character & 63)
        return written + 3
    put_byte(into, written, 0xF0 | character >> 18)
    put_byte(into, written + 1, 0x80 | character >> 12 & 63)
    put_byte(into, written + 2, 0x80 | character >> 6 & 63)
    put_byte(into, written + 3, 0x80 | character & 63)
    return written + 4


@compiled
def character_size(text: int, position: int, end: int) -> int:
    """Return how many bytes the non-ASCII character at `position` has, or 0 if it is not valid UTF-8 (RFC 3629).

    Overlong forms, surrogates and code points above U+10FFFF are not valid.
    """
    first, second = byte_at(text, position), byte_at(text, position + 1)
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if position + size > end:
        return 0
    lowest = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    highest = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < lowest or second > highest:
        return 0
    for index in range(position + 2, position + size):
        if byte_at(text, index) & 0xC0 != 0x80:
            return 0
    return size
