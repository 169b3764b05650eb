"""Stand-ins for parts of an event's data that Spark's VARIANT and UTF-8 strings cannot represent.

A character that the data does not contain replaces half of a surrogate pair. A number between spaces in a string
replaces a number that VARIANT would round; Spark can still cast it to a number. `restore` reverses both. Time and
memory of both are linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from eventbridge.event.json_document import JsonValue, Number, write_document
from eventbridge.event.json_text import canonical_number

HALF: Final = re.compile("[\ud800-\udfff]")
#: The characters used as stand-ins: the private-use characters of planes 15 and 16.
_PRIVATE: Final = range(0xF0000, 0x10FFFE)
_SPACES = re.compile(" +")
#: The maximum of spaces on each side of a number. Data with a longer run of spaces keeps its numbers, which Spark may
#: round.
_MOST_SPACES: Final = 64
#: The maximum digits of a VARIANT's decimal, and those after the point.
_DECIMAL_DIGITS: Final = 38
#: Java round-trips a double of at most this many digits, in this range of exponents.
_DOUBLE_DIGITS: Final = 15
_DOUBLE_EXPONENT: Final = 300


@dataclass(frozen=True)
class StandIns:
    """The text of some data for Spark, and the state for `restore`; None: there are no stand-ins."""

    text: str
    key: str | None


def stand_in(data: JsonValue) -> StandIns:
    """Return the JSON of an event's data for Spark, with stand-ins for what Spark would change or reject."""
    written = write_document(data)
    replaced = _Replacer(written)
    text = write_document(replaced.value(data))
    used = replaced.halves or replaced.spaces_used
    return StandIns(text, json.dumps([replaced.halves, replaced.spaces]) if used else None)


def restore(value: str, key: str, *, is_json: bool) -> str:
    """Return a result of Spark with all stand-ins replaced by the original parts.

    Halves of surrogate pairs are escaped in a JSON value, and raw characters in a text value.
    """
    halves, spaces = json.loads(key)
    pad, number = " " * spaces, r"-?[0-9][0-9.eE+-]*"
    found = re.sub(rf'(\\*"){pad}({number}){pad}\1|{pad}({number}){pad}', lambda match: match[2] or match[3], value)
    return found.translate({ord(made): f"\\u{ord(half):04x}" if is_json else half for half, made in halves.items()})


class _Replacer:
    """Replaces the parts of one event that Spark cannot represent."""

    def __init__(self, written: str) -> None:
        self.halves: dict[str, str] = {}
        self.spaces = max(map(len, _SPACES.findall(written)), default=0) + 1
        self.spaces_used = False
        known = set(written)
        self._free = (chr(code) for code in _PRIVATE if chr(code) not in known)

    def value(self, value: JsonValue) -> JsonValue:
        """Return a value with its replacements."""
        match value:
            case str():
                return self._text(value)
            case Number():
                return self._number(value)
            case dict():
                return {self._text(name): self.value(inner) for name, inner in value.items()}
            case list():
                return [self.value(inner) for inner in value]
            case _:
                return value

    def _text(self, text: str) -> str:
        return text if text.isascii() else HALF.sub(self._character, text)

    def _character(self, half: re.Match[str]) -> str:
        if half[0] not in self.halves:
            self.halves[half[0]] = next(self._free)
        return self.halves[half[0]]

    def _number(self, number: Number) -> JsonValue:
        held = _held_number(number)
        if held is not None:
            return Number(held)
        if self.spaces > _MOST_SPACES:
            return number
        self.spaces_used = True
        pad = " " * self.spaces
        return f"{pad}{number.text}{pad}"


def _held_number(number: Number) -> str | None:
    """Return a spelling of a number that a VARIANT represents exactly, None if there is none."""
    text = number.text
    if len(text) <= _DECIMAL_DIGITS and "e" not in text and "E" not in text:
        return text
    exact = canonical_number(number)
    mantissa, _, exponent = exact.partition("e")
    digits = mantissa.lstrip("-").replace(".", "").lstrip("0")
    fraction = len(mantissa.partition(".")[2])
    if not exponent:
        return exact if max(len(digits), fraction) <= _DECIMAL_DIGITS else None
    if len(exponent) > len("+300"):
        return None
    power = int(exponent)
    sign = "-" if exact[0] == "-" else ""
    if 0 < power < _DECIMAL_DIGITS and fraction <= power:
        return sign + digits.ljust(power + 1, "0")
    if len(digits) <= _DOUBLE_DIGITS and abs(power) <= _DOUBLE_EXPONENT:
        return exact
    zeros = -power - 1
    return f"{sign}0.{'0' * zeros}{digits}" if 0 <= zeros <= _DECIMAL_DIGITS - len(digits) else None
