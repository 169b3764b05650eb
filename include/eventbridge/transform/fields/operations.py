"""Implements the operations `cast`, `flatten`, `hash` and `mask` of the FIELDS form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from eventbridge.errors import EventError, TransformFailed
from eventbridge.event.json_document import JsonValue, Number, parse_value, type_name, write_document
from eventbridge.transform.rendered import MAXIMUM_BYTES, too_large

#: The maximum number of zeros that `cast` writes for an exponent. Without it, a number as short as 1e999999999 would
#: become a gigabyte of digits.
MAXIMUM_DIGITS: Final = 1_000

_BLANK = " \t\r\n"


def to_string(value: JsonValue) -> JsonValue:
    """Return a value as a string: a string unchanged, a number as written, and any other value as compact JSON."""
    if isinstance(value, str):
        return value
    return value.text if isinstance(value, Number) else write_document(value)


def to_number(value: JsonValue) -> JsonValue:
    """Convert a value to a number: numbers and numeric strings keep all their digits; true becomes 1 and false 0."""
    if isinstance(value, Number):
        return value
    if isinstance(value, bool):
        return Number("1" if value else "0")
    if isinstance(value, str) and Number.is_number(text := value.strip(_BLANK)):
        return Number(text)
    raise TransformFailed(f"{format_value(value)} is not a number")


def to_integer(value: JsonValue) -> JsonValue:
    """Return the result of `to_number` in plain digits (`5.0` is 5, `1e3` is 1000); a fraction is an error."""
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
    # an exponent may have any length, but int() need not read more than 18 digits of it
    zeros = int(exponent[:18] or "0") - len(fraction) + len(digits) - len(significant)
    if zeros < 0:
        raise TransformFailed(f"{format_value(value)} is not an integer")
    if zeros > MAXIMUM_DIGITS:
        raise TransformFailed(f"{format_value(value)} has too many digits as an integer")
    return Number(("-" if mantissa[0] == "-" else "") + significant + "0" * zeros)


def to_boolean(value: JsonValue) -> JsonValue:
    """Return true for true, 1 and the strings `true` and `1` in any case, and false for their opposites."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Number) and value in (Number("0"), Number("1")):
        return value == Number("1")
    if isinstance(value, str) and (word := value.strip(_BLANK).lower()) in ("true", "false", "1", "0"):
        return word in ("true", "1")
    raise TransformFailed(f"{format_value(value)} is neither true nor false")


def to_json(value: JsonValue) -> JsonValue:
    """Return the value of JSON text, with its numbers as written; any value but a string is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return parse_value(value)
    except EventError as error:
        raise TransformFailed(f"{format_value(value)} is {error}") from None


def format_value(value: JsonValue) -> str:
    """Return a value in the form for messages: shortened, or as its type if it is an object or a list."""
    match value:
        case str():
            return repr(value) if len(value) <= 60 else f"{value[:60]!r}..."
        case Number():
            return value.text if len(value.text) <= 60 else f"{value.text[:60]}..."
        case bool():
            return "true" if value else "false"
        case _:
            return type_name(value)


#: The function for each value of the `to` option. None is called for null, which stays null.
TYPES: Final[dict[str, Callable[[JsonValue], JsonValue]]] = {
    "string": to_string,
    "integer": to_integer,
    "number": to_number,
    "boolean": to_boolean,
    "json": to_json,
}


@dataclass(frozen=True, slots=True)
class Flatten:
    """Flattens an object by joining names with `delimiter`, down to `depth` levels, or to any level if that is None."""

    delimiter: str
    depth: int | None

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return the flat object; lists and empty objects are not changed, and members keep their order.

        {"a": {"b": {"c": 1}}} becomes {"a.b.c": 1}, or {"a.b": {"c": 1}} with depth 1.
        Raises TransformFailed if the value is not an object, or two members would have the same name.
        """
        if not isinstance(value, dict):
            raise TransformFailed(f"it is {type_name(value)}, but only an object can be flattened")
        flat: dict[str, JsonValue] = {}
        size = 0
        for name, inner in self._members(value, "", self.depth):
            size += len(name)
            if size > MAXIMUM_BYTES:
                raise too_large(size)
            if name in flat:
                raise TransformFailed(f"two of its members would be named {name!r}")
            flat[name] = inner
        return flat

    def _members(self, value: dict[str, JsonValue], prefix: str, depth: int | None) -> Iterator[tuple[str, JsonValue]]:
        for name, inner in value.items():
            if isinstance(inner, dict) and inner and depth != 0:
                below = None if depth is None else depth - 1
                yield from self._members(inner, f"{prefix}{name}{self.delimiter}", below)
            else:
                yield prefix + name, inner


@dataclass(frozen=True, slots=True)
class Hash:
    """Hashes `salt` and the value's text with SHA-256, without a key, because rule files must not contain secrets."""

    salt: str

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return 64 hex digits; "abc" without salt becomes ba7816bf...f20015ad, and 1 and 1.0 have different hashes."""
        text = to_string(value)
        assert isinstance(text, str)
        try:
            return hashlib.sha256((self.salt + text).encode()).hexdigest()
        except UnicodeEncodeError:
            raise TransformFailed("it contains half of a surrogate pair, which UTF-8 cannot encode") from None


@dataclass(frozen=True, slots=True)
class Mask:
    """Masks all characters but the first `keep_first` and last `keep_last`; a string with no others is masked
    entirely."""

    keep_first: int
    keep_last: int
    character: str

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return a string, or a number's text, masked. For anything else, raises TransformFailed with an error that
        does not show the value.

        With keep_last 4, "4111111111111111" becomes "************1111", 12345 becomes "*2345", "1111" becomes "****".
        """
        text = value.text if isinstance(value, Number) else value
        if not isinstance(text, str):
            raise TransformFailed(f"it is {type_name(value)}, but only strings and numbers can be masked")
        covered = len(text) - self.keep_first - self.keep_last
        if covered <= 0:
            return self.character * len(text)
        return text[: self.keep_first] + self.character * covered + text[len(text) - self.keep_last :]
