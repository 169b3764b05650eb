"""Writes values as JSON: as canonical text, as plain types for output, and truncated if they are large."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from eventbridge.event.json_document import EXACT, JsonValue, Number, write_document, write_pieces

#: The maximum number of digits before the decimal point of a number that is written without an exponent.
_MAX_WHOLE_DIGITS: Final = 21
#: The maximum number of zeros between the point and the first digit of a number that is written without an exponent.
_MAX_LEADING_ZEROS: Final = 6


def canonical_text(value: JsonValue) -> str:
    """Return the canonical JSON text of a value: numbers by exact value, members of an object sorted by name."""
    return write_document(_canonical(value))


def canonical_number(number: Number) -> str:
    """Return the same text for all numbers of equal value, in ECMAScript's number format; no digit is rounded.

    7, 7.0 and 7e0 are `7`, -0 is `0`, 0.50 is `0.5`, and 1e400 is `1e+400`. The cost grows with the length of the
    number's text, not with its value.
    """
    text = number.text
    if len(text) <= _MAX_WHOLE_DIGITS and text.isdecimal():
        return text
    _, position, digits = Number(text.lstrip("-")).order
    if not digits:
        return "0"
    sign = "-" if text[0] == "-" else ""
    if -_MAX_LEADING_ZEROS <= position <= _MAX_WHOLE_DIGITS:
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


def plain(value: Any) -> Any:
    """Return a value as plain JSON types, with `Number` where digits must not change."""
    if isinstance(value, str | Number):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return bytes_as_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, Iterable) else value


def bytes_as_text(value: bytes) -> str:
    """Return bytes as text if they are UTF-8, else as base64 with the prefix `base64:`."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


class _LongEnough(Exception):
    """Signals that the text has reached its maximum length."""


def write_head(value: object, max_chars: int) -> str:
    """Return compact JSON text, truncated to `max_chars` characters if it is longer; a truncated text ends with "...".

    Only the returned text is generated, so the cost does not depend on the size of the value.
    """
    pieces: list[str] = []
    length = 0

    def put(piece: str) -> None:
        nonlocal length
        pieces.append(piece)
        length += len(piece)
        if length > max_chars:
            raise _LongEnough

    try:
        write_pieces(value, put)
    except _LongEnough:
        pieces = ["".join(pieces)[: max_chars - 3], "..."]
    return "".join(pieces).encode("utf-8", "backslashreplace").decode()  # like write_document, escapes lone surrogates
