"""Finds the ends of values in validated JSON, where the first bracket, quote or comma decides."""

from __future__ import annotations

from typing import Any

import numpy as np

from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.marks import string_marks
from eventbridge.matching.scan.memory import byte_at, lowest_bit
from eventbridge.matching.scan.values import CLOSE_ARRAY, CLOSE_OBJECT, OPEN_ARRAY, OPEN_OBJECT, QUOTE

_ZERO = np.uint64(0)


@compiled
def value_end(text: int, position: int, stop: int) -> Any:
    """Return the position behind the object or array that begins at `position`."""
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
    """Return where the closing quote is of a string that is short and has no escapes, -1 of any other."""
    marks = string_marks(text, position)
    if marks == _ZERO:
        return -1
    position += lowest_bit(marks)
    return position if byte_at(text, position) == QUOTE else -1


@compiled
def string_end(text: int, position: int, stop: int) -> Any:
    """Return where the closing quote is of the string whose content begins at `position`."""
    while position < stop:
        marks = string_marks(text, position)
        if marks == _ZERO:
            position += 32
            continue
        position += lowest_bit(marks)
        if byte_at(text, position) == QUOTE:
            break
        position += 2  # a backslash, and what it escapes: the four digits of a character are neither
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
