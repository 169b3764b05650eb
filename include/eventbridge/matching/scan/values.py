"""Reads numbers and words of JSON, and skips values that are not requested.

`skip_value` checks values as strictly as the scanner checks requested ones. `value_end` and `string_end` do not
validate.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.event.json_document import MAXIMUM_DEPTH
from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.marks import string_marks
from eventbridge.matching.scan.memory import byte_at, int64_at, lowest_bit
from eventbridge.matching.scan.numbers import quick_number_end

QUOTE: Final = ord('"')
COMMA: Final = ord(",")
COLON: Final = ord(":")
OPEN_OBJECT: Final = ord("{")
CLOSE_OBJECT: Final = ord("}")
OPEN_ARRAY: Final = ord("[")
CLOSE_ARRAY: Final = ord("]")

_NINE = ord("9")
_ONE, _ZERO = np.uint64(1), np.uint64(0)


@compiled
def skip_value(text: int, tokens: int, token: int, count: int, depth: int) -> Any:
    """Return the number of the token after the object or array that begins at `token`, or -1 if it is not JSON.

    The outline at `tokens` has `count` tokens. `depth` is the number of objects and arrays that contain the value. The
    stack of open objects and arrays has one bit for each, which is 1 for an array.
    """
    base = depth
    low, high = _ZERO, _ZERO  # the bits of the innermost 64 objects and arrays, and of the next 64
    while token < count:
        # 1. A value begins.
        position = int64_at(tokens, token)
        byte = byte_at(text, position)
        token += 1
        if byte == QUOTE:
            token += 1
        elif byte == OPEN_OBJECT or byte == OPEN_ARRAY:
            if depth == MAXIMUM_DEPTH:
                return -1
            depth += 1
            high = (high << _ONE) | (low >> np.uint64(63))
            low = (low << _ONE) | (_ONE if byte == OPEN_ARRAY else _ZERO)
            if byte_at(text, int64_at(tokens, token)) != byte + 2:
                if byte == OPEN_OBJECT:
                    if not _is_key(text, tokens, token):
                        return -1
                    token += 3
                continue
        elif plain_length(text, position, int64_at(tokens, token)) == 0:
            return -1
        # 2. It has ended.
        while True:
            if token >= count:
                return -1
            byte = byte_at(text, int64_at(tokens, token))
            token += 1
            in_array = low & _ONE != _ZERO
            if byte == COMMA:
                if not in_array:
                    if not _is_key(text, tokens, token):
                        return -1
                    token += 3
                break
            if byte != (CLOSE_ARRAY if in_array else CLOSE_OBJECT):
                return -1
            depth -= 1
            if depth == base:
                return token
            low = (low >> _ONE) | (high << np.uint64(63))
            high >>= _ONE
    return -1


@inlined
def _is_key(text: int, tokens: int, token: int) -> Any:
    """Return whether a string followed by a colon begins at `token`."""
    return byte_at(text, int64_at(tokens, token)) == QUOTE and byte_at(text, int64_at(tokens, token + 2)) == COLON


@inlined
def plain_length(text: int, position: int, following: int) -> Any:
    """Return the length of the number or word at `position`, or 0 if no valid one ends before the next token.

    `following` is the position of that token.
    """
    if byte_at(text, position) <= _NINE:
        end = quick_number_end(text, position, following)
    else:
        end = position + word_length(text, position)
    # Characters before the next token, other than white space, belong to the same number or word.
    if end <= position or (end != following and byte_at(text, end) > 32):
        return 0
    return end - position


@compiled
def word_length(text: int, position: int) -> Any:
    """Return the length of the word null, true or false at `position`, or 0 if there is none."""
    first, second, third = byte_at(text, position), byte_at(text, position + 1), byte_at(text, position + 2)
    fourth = byte_at(text, position + 3)
    if first == 116 and second == 114 and third == 117 and fourth == 101:
        return 4
    if first == 110 and second == 117 and third == 108 and fourth == 108:
        return 4
    if first == 102 and second == 97 and third == 108 and fourth == 115 and byte_at(text, position + 4) == 101:
        return 5
    return 0


@compiled
def value_end(text: int, position: int, stop: int) -> Any:
    """Return the position after the object or array that begins at `position`."""
    depth = 0
    while position < stop:
        byte = byte_at(text, position)
        position += 1
        if byte == QUOTE:
            position = string_end(text, position, stop) + 1
        elif byte == OPEN_OBJECT or byte == OPEN_ARRAY:
            depth += 1
        elif byte == CLOSE_OBJECT or byte == CLOSE_ARRAY:
            depth -= 1
            if depth == 0:
                break
    return position


@inlined
def quick_string_end(text: int, position: int) -> Any:
    """Return the position of the closing quote of a string without escapes, of up to 31 bytes; -1 for any other."""
    marks = string_marks(text, position)
    if marks == _ZERO:
        return -1
    position += lowest_bit(marks)
    return position if byte_at(text, position) == QUOTE else -1


@compiled
def string_end(text: int, position: int, stop: int) -> Any:
    """Return the position of the closing quote of the string whose content begins at `position`."""
    while position < stop:
        marks = string_marks(text, position)
        if marks == _ZERO:
            position += 32
            continue
        position += lowest_bit(marks)
        if byte_at(text, position) == QUOTE:
            break
        position += 2  # skip the backslash and the byte after it; the four digits of a \u escape end no string
    return position


@inlined
def skip_space(text: int, position: int) -> Any:
    """Return the position of the next byte that is not white space."""
    while byte_at(text, position) <= 32:
        byte = byte_at(text, position)
        if byte != 32 and byte != 10 and byte != 13 and byte != 9:
            break
        position += 1
    return position
