"""Canonical JSON text: values that patterns compare as equal have the same text."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from eventbridge.event.json_document import EXACT, JsonValue, Number, write_document

#: A number has no exponent if its first digit is at most so many places left of the decimal point ...
_MOST_WHOLE_DIGITS: Final = 21
#: ... and at most so many zeros stand between the point and its first digit.
_MOST_LEADING_ZEROS: Final = 6


def canonical_text(value: JsonValue) -> str:
    """Return the text of a value: numbers by exact value, members of an object in the order of their names."""
    return write_document(_canonical(value))


def canonical_number(number: Number) -> str:
    """Return the one text of all numbers with the same value, in ECMAScript's number format; no digit is rounded.

    7, 7.0 and 7e0 are `7`, -0 is `0`, 0.50 is `0.5`, and 1e400 is `1e+400`. The cost grows with the length of the
    number's text, not with its value.
    """
    text = number.text
    if len(text) <= _MOST_WHOLE_DIGITS and text.isdecimal():
        return text
    _, position, digits = Number(text.lstrip("-")).order
    if not digits:
        return "0"
    sign = "-" if text[0] == "-" else ""
    if -_MOST_LEADING_ZEROS <= position <= _MOST_WHOLE_DIGITS:
        return sign + _plain(digits, int(position))
    exponent = EXACT.subtract(Decimal(position), 1)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'' if exponent.is_signed() else '+'}{exponent:f}"


def _plain(digits: str, position: int) -> str:
    """Return 0.DIGITS x 10^position without an exponent."""
    if position <= 0:
        return f"0.{'0' * -position}{digits}"
    whole, fraction = digits[:position].ljust(position, "0"), digits[position:]
    return f"{whole}.{fraction}" if fraction else whole


def _canonical(value: JsonValue) -> JsonValue:
    match value:
        case Number():
            return Number(canonical_number(value))
        case dict():
            return {name: _canonical(value[name]) for name in sorted(value)}
        case list():
            return [_canonical(each) for each in value]
        case _:
            return value
