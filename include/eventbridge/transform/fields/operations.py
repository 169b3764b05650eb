"""The operations of the form FIELDS that change one value: `cast`, `flatten`, `hash`, `mask`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from eventbridge.errors import EventError, TransformFailed
from eventbridge.event.json_document import JsonValue, Number, parse_value, type_name, write_document
from eventbridge.transform.rendered import MAXIMUM_BYTES, too_large

#: The longest integer that `cast` writes out of an exponent: 1e999999999 is a short text for a long number.
MAXIMUM_DIGITS: Final = 1_000

_BLANK = " \t\r\n"


def to_string(value: JsonValue) -> JsonValue:
    """Return text unchanged, a number's original text, `true`, `false`, or the compact JSON of an object or list."""
    if isinstance(value, str):
        return value
    return value.text if isinstance(value, Number) else write_document(value)


def to_number(value: JsonValue) -> JsonValue:
    """Return a number as it is, text with a JSON number as this number, digit for digit, true as 1 and false as 0."""
    if isinstance(value, Number):
        return value
    if isinstance(value, bool):
        return Number("1" if value else "0")
    if isinstance(value, str) and Number.is_number(text := value.strip(_BLANK)):
        return Number(text)
    raise TransformFailed(f"{format_value(value)} is not a number")


def to_integer(value: JsonValue) -> JsonValue:
    """Return `to_number` in plain digits (`5.0` is 5, `1e3` is 1000); a fraction is refused, not rounded."""
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
    # int() of a maximum of 18 digits: an exponent may be of any length
    zeros = int(exponent[:18] or "0") - len(fraction) + len(digits) - len(significant)
    if zeros < 0:
        raise TransformFailed(f"{format_value(value)} is not an integer")
    if zeros > MAXIMUM_DIGITS:
        raise TransformFailed(f"{format_value(value)} has too many digits as an integer")
    return Number(("-" if mantissa[0] == "-" else "") + significant + "0" * zeros)


def to_boolean(value: JsonValue) -> JsonValue:
    """Return true or false as it is, and for the numbers 1 and 0, and for `true`, `false`, `1`, `0` in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Number) and value in (Number("0"), Number("1")):
        return value == Number("1")
    if isinstance(value, str) and (word := value.strip(_BLANK).lower()) in ("true", "false", "1", "0"):
        return word in ("true", "1")
    raise TransformFailed(f"{format_value(value)} is neither true nor false")


def to_json(value: JsonValue) -> JsonValue:
    """Return the value of a text of JSON, with numbers as written; a value that is not text is JSON already."""
    if not isinstance(value, str):
        return value
    try:
        return parse_value(value)
    except EventError as error:
        raise TransformFailed(f"{format_value(value)} is {error}") from None


def format_value(value: JsonValue) -> str:
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


#: The possible values of `to`; null always stays null.
TYPES: Final[dict[str, Callable[[JsonValue], JsonValue]]] = {
    "string": to_string,
    "integer": to_integer,
    "number": to_number,
    "boolean": to_boolean,
    "json": to_json,
}


@dataclass(frozen=True, slots=True)
class Flatten:
    """Joins names by `delimiter`; objects more than `depth` levels down stay objects, unless `depth` is None."""

    delimiter: str
    depth: int | None

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return the flat object; lists and empty objects stay as they are, members keep their order.

        {"a": {"b": {"c": 1}}} becomes {"a.b.c": 1}, with depth 1 {"a.b": {"c": 1}}.
        TransformFailed if it is not an object, or if two members would have one name.
        """
        if not isinstance(value, dict):
            raise TransformFailed(f"it is {type_name(value)}, and only an object can be flattened")
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
    """SHA-256 of `salt` followed by the value's text, in UTF-8; there is no key, because a rule file must not contain a
    secret."""

    salt: str

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return 64 hexadecimal digits: of "abc" without salt ba7816bf...f20015ad; 1 and 1.0 have different ones."""
        text = to_string(value)
        assert isinstance(text, str)
        try:
            return hashlib.sha256((self.salt + text).encode()).hexdigest()
        except UnicodeEncodeError:
            raise TransformFailed("it contains half of a surrogate pair, which UTF-8 cannot encode") from None


@dataclass(frozen=True, slots=True)
class Mask:
    """Covers every character but the first `keep_first` and the last `keep_last`; what is not longer, whole."""

    keep_first: int
    keep_last: int
    character: str

    def __call__(self, value: JsonValue) -> JsonValue:
        """Return text or the text of a number, masked; TransformFailed for anything else, without its value.

        With keep_last 4, "4111111111111111" becomes "************1111", 12345 becomes "*2345", "1111" becomes "****".
        """
        text = value.text if isinstance(value, Number) else value
        if not isinstance(text, str):
            raise TransformFailed(f"it is {type_name(value)}, and only strings and numbers can be masked")
        covered = len(text) - self.keep_first - self.keep_last
        if covered <= 0:
            return self.character * len(text)
        return text[: self.keep_first] + self.character * covered + text[len(text) - self.keep_last :]
