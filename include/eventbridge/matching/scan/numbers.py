"""Finds the end of JSON numbers, and compares their values exactly without computing them.

A value is 0 or sign x 0.d1d2d3... x 10^position. Without leading and trailing zeros among the digits this form is
unique, so two numbers compare by sign, then position, then digits. `Number` of `event.json_document` does the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from eventbridge.matching.scan.compiled import compiled, inlined
from eventbridge.matching.scan.marks import digit_marks
from eventbridge.matching.scan.memory import byte_at, lowest_bit, put_byte

_ZERO, _NINE, _MINUS, _PLUS, _POINT, _E = ord("0"), ord("9"), ord("-"), ord("+"), ord("."), ord("e")

SIMPLE_DIGITS: Final = 15
"""The maximum number of digits at which different decimals have different doubles (IEEE 754)."""

POSITION_DIGITS: Final = 18
"""The maximum number of digits in an exponent that is computed; the position would not fit into 64 bits with more."""

FAR: Final = 1 << 61
"""The position in place of one that is not computed, because the exponent has more than POSITION_DIGITS digits."""

NEAR: Final = 2 * 10**17
"""A number whose position is at most this far from 0 compares correctly with every other one. A position that is not
computed is farther from 0, because its exponent is at least 10^18 and the digits before it are fewer than 2^32."""

_LOADED_BYTES: Final = 30
"""A number of this many bytes or more, without its sign, may extend beyond one load of 32 bytes."""

_POWERS = 10.0 ** np.arange(SIMPLE_DIGITS + 1)


@inlined
def quick_number_end(text: int, position: int, stop: int) -> Any:
    """Return what `number_end` returns, in one step for most numbers; it may read more bytes after `stop`."""
    first = position
    if byte_at(text, position) == _MINUS:
        first += 1
    others = ~digit_marks(text, first)
    whole = lowest_bit(others)
    if whole == 0 or (whole > 1 and byte_at(text, first) == _ZERO):
        return -1
    end = first + whole
    if whole < _LOADED_BYTES and byte_at(text, end) == _POINT:
        decimals = lowest_bit(others >> np.uint64(whole + 1))
        if decimals == 0:
            return -1
        end += decimals + 1
    if end - first >= _LOADED_BYTES or byte_at(text, end) | 32 == _E:
        return number_end(text, position, stop)
    return end


@compiled
def number_end(text: int, position: int, stop: int) -> int:
    """Return the position after the number that begins at `position`, or -1 if RFC 8259 allows none there.

    Digits from `stop` on are ignored, so at most two bytes are read after a text that ends in a number.
    """
    if byte_at(text, position) == _MINUS:
        position += 1
    if byte_at(text, position) == _ZERO:
        position += 1
    elif _ZERO < byte_at(text, position) <= _NINE:
        position = _digits_end(text, position, stop)
    else:
        return -1
    if byte_at(text, position) == _POINT:
        first = position + 1
        position = _digits_end(text, first, stop)
        if position == first:
            return -1
    if byte_at(text, position) | 32 == _E:
        position += 1
        if byte_at(text, position) == _PLUS or byte_at(text, position) == _MINUS:
            position += 1
        first = position
        position = _digits_end(text, first, stop)
        if position == first:
            return -1
    return position


@inlined
def _digits_end(text: int, position: int, stop: int) -> int:
    while position < stop and _ZERO <= byte_at(text, position) <= _NINE:
        position += 1
    return position


@compiled
def simple_number(text: int, position: int, length: int) -> tuple[bool, float]:
    """Return (True, nearest double) for a number of at most 15 digits without an exponent, else (False, 0.0).

    The double is correctly rounded: the digits and the power of ten are exact, and there is one division.
    """
    stop = position + length
    negative = byte_at(text, position) == _MINUS
    if negative:
        position += 1
    if stop - position > SIMPLE_DIGITS + 1:
        return False, 0.0
    whole, decimals, after_point = np.int64(0), 0, False
    digits = 0
    while position < stop:
        byte = byte_at(text, position)
        if byte == _POINT:
            after_point = True
        elif byte <= _NINE:
            whole = whole * 10 + (byte - _ZERO)
            digits += 1
            if after_point:
                decimals += 1
        else:
            return False, 0.0
        position += 1
    if digits > SIMPLE_DIGITS:
        return False, 0.0
    value = whole / _POWERS[decimals]
    return True, -value if negative else value


@compiled
def normal_form(text: int, position: int, length: int, digits: int) -> tuple[int, int, int]:
    """Write a number's digits into `digits` without leading and trailing zeros; return (sign, position, count).

    The sign is -1, 0 or 1. `digits` must have room for `length` bytes. The position is FAR or -FAR if the exponent has
    too many digits.
    """
    stop = position + length
    sign = 1
    if byte_at(text, position) == _MINUS:
        sign = -1
        position += 1
    count, power, after_point = 0, 0, False
    while position < stop and byte_at(text, position) | 32 != _E:
        byte = byte_at(text, position)
        position += 1
        if byte == _POINT:
            after_point = True
        elif count > 0 or byte != _ZERO:
            put_byte(digits, count, byte)
            count += 1
            power += 0 if after_point else 1
        elif after_point:
            power -= 1
    while count > 0 and byte_at(digits, count - 1) == _ZERO:
        count -= 1
    if count == 0:
        return 0, 0, 0
    exponent = 0
    if position < stop:
        position += 1
        negative = byte_at(text, position) == _MINUS
        if negative or byte_at(text, position) == _PLUS:
            position += 1
        while position < stop and byte_at(text, position) == _ZERO:
            position += 1
        if stop - position > POSITION_DIGITS:
            return sign, -FAR if negative else FAR, count
        while position < stop:
            exponent = exponent * 10 + (byte_at(text, position) - _ZERO)
            position += 1
        if negative:
            exponent = -exponent
    return sign, power + exponent, count


@compiled
def compare(
    sign: int, power: int, digits: int, count: int, other_sign: int, other_power: int, other: int, first: int, size: int
) -> int:
    """Return -1, 0 or 1: whether the first number in normal form is below, equal to or above the second.

    The digits of the first are `digits[:count]`, and those of the second `other[first:first + size]`.
    """
    if sign != other_sign:
        return -1 if sign < other_sign else 1
    if sign == 0:
        return 0
    if power != other_power:
        return sign if power > other_power else -sign
    for index in range(min(count, size)):
        if byte_at(digits, index) != byte_at(other, first + index):
            return sign if byte_at(digits, index) > byte_at(other, first + index) else -sign
    if count == size:
        return 0
    return sign if count > size else -sign
