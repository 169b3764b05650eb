"""Parses IP addresses in their strict spelling, like `eventbridge.matching.pattern.address`, as numbers of 128 bits.

An IPv4 address gets the number of its IPv4-mapped IPv6 address, because both count as the same address.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import byte_at
from eventbridge.matching.scan.strings import hex_value

MAPPED: Final = 0xFFFF << 32
"""The number of the IPv4-mapped address of 0.0.0.0; an IPv4 address is added to it."""

_POINT, _COLON = ord("."), ord(":")
_NONE = np.uint64(0)


@compiled
def parse_address(text: int, position: int, length: int) -> Any:
    """Return (True, upper 64 bits, lower 64 bits) for an address, and (False, 0, 0) for any other text."""
    colons = False
    if length > 45:
        return False, _NONE, _NONE
    for index in range(position, position + length):
        if byte_at(text, index) == _COLON:
            colons = True
    if colons:
        return _parse_six(text, position, length)
    good, value = _parse_four(text, position, length)
    if not good:
        return False, _NONE, _NONE
    return True, _NONE, np.uint64(MAPPED) | np.uint64(value)


@compiled
def _parse_four(text: int, position: int, length: int) -> tuple[bool, int]:
    value, part, digits, parts = 0, 0, 0, 1
    for index in range(position, position + length):
        byte = byte_at(text, index)
        if 48 <= byte <= 57:
            if digits > 0 and part == 0:  # a leading zero
                return False, 0
            part = part * 10 + byte - 48
            digits += 1
            if part > 255 or digits > 3:
                return False, 0
        elif byte == _POINT and digits > 0:
            value = value * 256 + part
            part, digits = 0, 0
            parts += 1
        else:
            return False, 0
    if parts != 4 or digits == 0:
        return False, 0
    return True, value * 256 + part


@compiled
def _parse_six(text: int, position: int, length: int) -> Any:
    """Parse an IPv6 address: groups of up to four digits between colons, at most one `::`, and perhaps IPv4 at the end.

    `::` stands for one or more groups of zeros.
    """
    stop = position + length
    high, low, groups = _NONE, _NONE, 0
    gap = -1  # the number of groups before the ::
    index = position
    if byte_at(text, index) == _COLON:
        if length < 2 or byte_at(text, index + 1) != _COLON:
            return False, _NONE, _NONE
        gap = 0
        index += 2
    while index < stop:
        first, value = index, 0
        while index < stop and hex_value(byte_at(text, index)) >= 0:
            value = value * 16 + hex_value(byte_at(text, index))
            index += 1
            if index - first > 4:
                break
        size = index - first
        if index < stop and byte_at(text, index) == _POINT:
            good, four = _parse_four(text, first, stop - first)
            if not good or groups > 6:
                return False, _NONE, _NONE
            high = (high << np.uint64(32)) | (low >> np.uint64(32))
            low = (low << np.uint64(32)) | np.uint64(four)
            groups += 2
            index = stop
            break
        if size == 0 or size > 4 or groups > 7:
            return False, _NONE, _NONE
        high = (high << np.uint64(16)) | (low >> np.uint64(48))
        low = (low << np.uint64(16)) | np.uint64(value)
        groups += 1
        if index == stop:
            break
        if byte_at(text, index) != _COLON or index + 1 == stop:
            return False, _NONE, _NONE
        index += 1
        if byte_at(text, index) == _COLON:
            if gap >= 0:
                return False, _NONE, _NONE
            gap = groups
            index += 1
    if gap < 0:
        return groups == 8, high if groups == 8 else _NONE, low if groups == 8 else _NONE
    if groups > 7:
        return False, _NONE, _NONE
    return _spread(high, low, groups, gap)


@compiled
def _spread(high: Any, low: Any, groups: int, gap: int) -> Any:
    """Insert the zeros of `::` after the first `gap` of `groups` groups."""
    behind = 16 * (groups - gap)  # the bits after the ::, which do not move
    tail_high, tail_low = _shifted_right(high, low, behind)  # the groups before the ::
    if behind < 64:
        low &= (np.uint64(1) << np.uint64(behind)) - np.uint64(1)
        high = _NONE
    elif behind < 128:
        high &= (np.uint64(1) << np.uint64(behind - 64)) - np.uint64(1)
    tail_high, tail_low = _shifted_left(tail_high, tail_low, 128 - 16 * gap)
    return True, high | tail_high, low | tail_low


@compiled
def _shifted_right(high: Any, low: Any, bits: int) -> tuple[Any, Any]:
    if bits == 0:
        return high, low
    if bits >= 128:
        return _NONE, _NONE
    if bits >= 64:
        return _NONE, high >> np.uint64(bits - 64)
    return high >> np.uint64(bits), (low >> np.uint64(bits)) | (high << np.uint64(64 - bits))


@compiled
def _shifted_left(high: Any, low: Any, bits: int) -> tuple[Any, Any]:
    if bits == 0:
        return high, low
    if bits >= 128:
        return _NONE, _NONE
    if bits >= 64:
        return low << np.uint64(bits - 64), _NONE
    return (high << np.uint64(bits)) | (low >> np.uint64(64 - bits)), low << np.uint64(bits)
