"""The operation `cast`: the same value as another type, or a failure; never a rounded or guessed one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventbridge.errors import EventError, TransformFailed
from eventbridge.event.json_document import JsonValue, Number, parse_value, type_name, write_document

#: The longest integer that `cast` writes out of an exponent: 1e999999999 is a short text for a long number.
MAXIMUM_DIGITS: Final = 1_000

_BLANK = " \t\r\n"


def to_string(value: JsonValue) -> JsonValue:
    """Return text as it is, a number's own text, `true`, `false`, or the compact JSON of an object or list."""
    if isinstance(value, str):
        return value
    return value.text if isinstance(value, Number) else write_document(value)


def to_number(value: JsonValue) -> JsonValue:
    """Return a number as it is, text that is one of JSON as that, digit for digit, true as 1 and false as 0."""
    if isinstance(value, Number):
        return value
    if isinstance(value, bool):
        return Number("1" if value else "0")
    if isinstance(value, str) and Number.is_number(text := value.strip(_BLANK)):
        return Number(text)
    raise TransformFailed(f"{shown(value)} is not a number")


def to_integer(value: JsonValue) -> JsonValue:
    """Return what `to_number` does in plain digits (`5.0` is 5, `1e3` is 1000); a fraction is refused, not rounded."""
    number = to_number(value)
    assert isinstance(number, Number)
    mantissa, _, exponent = number.text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return Number("0")
    if not fraction and not exponent:
        return number
    # int() of 18 digits at most: an exponent may be of any length
    zeros = int(exponent[:18] or "0") - len(fraction) + len(digits) - len(significant)
    if zeros < 0:
        raise TransformFailed(f"{shown(value)} is not an integer")
    if zeros > MAXIMUM_DIGITS:
        raise TransformFailed(f"{shown(value)} has too many digits as an integer")
    return Number(("-" if mantissa[0] == "-" else "") + significant + "0" * zeros)


def to_boolean(value: JsonValue) -> JsonValue:
    """Return true or false as it is, and for the numbers 1 and 0, and for `true`, `false`, `1`, `0` in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Number) and value in (Number("0"), Number("1")):
        return value == Number("1")
    if isinstance(value, str) and (word := value.strip(_BLANK).lower()) in ("true", "false", "1", "0"):
        return word in ("true", "1")
    raise TransformFailed(f"{shown(value)} is neither true nor false")


def to_json(value: JsonValue) -> JsonValue:
    """Return the value that a text of JSON spells, numbers as written; what is not text is JSON already."""
    if not isinstance(value, str):
        return value
    try:
        return parse_value(value)
    except EventError as error:
        raise TransformFailed(f"{shown(value)} is {error}") from None


def shown(value: JsonValue) -> str:
    """Return a value as messages show it: short, and containers by their type."""
    match value:
        case str():
            return repr(value) if len(value) <= 60 else f"{value[:60]!r}..."
        case Number():
            return value.text if len(value.text) <= 60 else f"{value.text[:60]}..."
        case bool():
            return "true" if value else "false"
        case _:
            return type_name(value)


#: What `to` may be; null stays null whatever it is.
TYPES: Final[dict[str, Callable[[JsonValue], JsonValue]]] = {
    "string": to_string,
    "integer": to_integer,
    "number": to_number,
    "boolean": to_boolean,
    "json": to_json,
}
