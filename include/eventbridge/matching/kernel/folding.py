"""Full Unicode case folding in compiled code, with tables for the Unicode version of this Python."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import byte_at, int32_at, int64_at, put_byte

_LAST_CASED = 0x1FFFF  # the last code point to check for a case folding; none follows


@cache
def folding_tables() -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return the non-ASCII code points that folding changes, where each folding begins, and the foldings in UTF-8."""
    points, firsts, folded = [], [0], bytearray()
    for point in range(0x80, _LAST_CASED + 1):
        character = chr(point)
        other = character.casefold()
        if other != character:
            points.append(point)
            folded += other.encode()
            firsts.append(len(folded))
    return np.array(points, np.int32), np.array(firsts, np.int32), np.frombuffer(bytes(folded), np.uint8)


@compiled
def fold(tables: int, text: int, position: int, length: int, into: int) -> Any:
    """Write the case-folded text to `into`; return its length, which is at most three times that of the text."""
    stop, written = position + length, 0
    while position < stop:
        byte = byte_at(text, position)
        if byte < 0x80:
            put_byte(into, written, byte + 32 if 65 <= byte <= 90 else byte)
            written += 1
            position += 1
            continue
        size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        point = byte & (0xFF >> (size + 1))
        for index in range(position + 1, position + size):
            point = point << 6 | (byte_at(text, index) & 63)
        folding = _folding(tables, point)
        if folding < 0:
            for index in range(position, position + size):
                put_byte(into, written, byte_at(text, index))
                written += 1
        else:
            firsts, folded = int64_at(tables, t.FOLD_FIRST), int64_at(tables, t.FOLD_BYTES)
            for index in range(int32_at(firsts, folding), int32_at(firsts, folding + 1)):
                put_byte(into, written, byte_at(folded, index))
                written += 1
        position += size
    return written


@compiled
def _folding(tables: int, point: int) -> Any:
    points = int64_at(tables, t.FOLD_POINTS)
    low, high = 0, int64_at(tables, t.FOLD_COUNT)
    while low < high:
        middle = (low + high) >> 1
        if int32_at(points, middle) < point:
            low = middle + 1
        else:
            high = middle
    if low < int64_at(tables, t.FOLD_COUNT) and int32_at(points, low) == point:
        return low
    return -1
