"""Parses and writes strict JSON documents whose numbers keep their original text.

Events and patterns are parsed here; matching, transforms and the stages use the values and write them again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final, NoReturn, TypeAlias

from eventbridge.errors import EventError

MAXIMUM_DEPTH: Final = 128
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# A string, a bracket or a word that is not JSON. An unterminated string also matches, so that no input makes the search
# quadratic.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]|NaN|-?Infinity', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_REVERSED_DIGITS = str.maketrans("0123456789", "9876543210")
JsonValue: TypeAlias = "bool | str | Number | list[JsonValue] | dict[str, JsonValue] | None"
Document: TypeAlias = "dict[str, JsonValue]"
EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)  # rounds nothing
_quote = json.encoder.encode_basestring
_CLOSERS = {"}": "an object", "]": "an array"}


class Number:
    """A JSON number, which keeps its text as written but is compared by its exact decimal value.

    `Number("1")`, `Number("1.0")` and `Number("1e0")` are equal and hash alike; their `text` differs.
    Digits and exponents have no limit. The time and memory of a comparison grow with the length of the numbers' text,
    never with their values (`1e999999999`). `text` must be a number as in RFC 8259; for Python's numbers, use
    `Number.from_python`.
    """

    __slots__ = ("_order", "text")
    text: str
    _order: tuple[int, Any, str] | None

    def __init__(self, text: str) -> None:
        _set_text(self, text)
        _set_order(self, None)

    @classmethod
    def from_python(cls, value: int | float | Decimal) -> Number:
        """Return a Python number as a JSON number. Raises ValueError for NaN and infinities, which JSON lacks."""
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{value} is not a JSON number")
            return cls(repr(value))
        exact = Decimal(value)  # str() of an int is limited to 4,300 digits, str() of a Decimal is not
        if not exact.is_finite():
            raise ValueError(f"{value} is not a JSON number")
        return cls(str(exact))

    @classmethod
    def is_number(cls, text: str) -> bool:
        """Return whether a string is a number as in RFC 8259."""
        return _NUMBER.fullmatch(text) is not None

    @property
    def order(self) -> tuple[int, Any, str]:
        """A key that sorts, compares and hashes like the number's exact value."""
        if self._order is None:
            _set_order(self, _order_of(self.text))
        assert self._order is not None
        return self._order

    def __eq__(self, other: object) -> bool:
        return self.order == other.order if isinstance(other, Number) else NotImplemented

    def __lt__(self, other: Number) -> bool:
        return self.order < other.order if isinstance(other, Number) else NotImplemented

    def __le__(self, other: Number) -> bool:
        return self.order <= other.order if isinstance(other, Number) else NotImplemented

    def __gt__(self, other: Number) -> bool:
        return self.order > other.order if isinstance(other, Number) else NotImplemented

    def __ge__(self, other: Number) -> bool:
        return self.order >= other.order if isinstance(other, Number) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.order)

    def __repr__(self) -> str:
        return f"Number({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[Number], tuple[str]]:
        return Number, (self.text,)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Number is frozen: {name} cannot be set")


_set_text: Callable[[Number, str], None] = Number.__dict__["text"].__set__


_set_order: Callable[[Number, tuple[int, Any, str] | None], None] = Number.__dict__["_order"].__set__


def _order_of(text: str) -> tuple[int, Any, str]:
    """Return (sign, position of the first digit, digits) of a JSON number as a tuple that compares like its value.

    The form 0.d1d2d3... x 10^position, with neither leading nor trailing zeros, is unique. Because the negative number
    with the greater magnitude is the smaller one, its position is negated, and each digit d becomes 9 - d, followed by
    a character that sorts above all digits.
    """
    if text.isdecimal():  # no sign, point or exponent
        return (0, 0, "") if text == "0" else (1, len(text), text.rstrip("0"))
    if not Number.is_number(text):
        raise ValueError(f"{text!r} is not a JSON number")
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    written = (whole + fraction).lstrip("0")
    digits = written.rstrip("0")
    if not digits:
        return (0, 0, "")
    position = _sum(exponent or "0", len(written) - len(fraction))
    if mantissa[0] == "-":
        return (-1, position.copy_negate(), digits.translate(_REVERSED_DIGITS) + ":")
    return (1, position, digits)


def _sum(integer: str, addend: int) -> Decimal:
    # Decimal, because an int of a million digits takes quadratic time; the sum is exact, because the context rounds
    # nothing
    return EXACT.add(Decimal(integer), addend)


def parse_document(text: bytes | str) -> Document:
    """Return the JSON object in `text`, parsed strictly by RFC 8259. Raises `EventError` with the error's position.

    It refuses bytes that are not UTF-8, a byte order mark, NaN and infinities, leading zeros, anything but white space
    after the object, and nesting deeper than 128. Of duplicate keys, the last one counts. Numbers are kept as written.
    """
    document = parse_value(text)
    if not isinstance(document, dict):
        raise EventError(f"{type_name(document)}, not a JSON object, at line 1, column 1")
    return document


def parse_value(text: bytes | str) -> JsonValue:
    """Return the JSON value in `text`, parsed as strictly as `parse_document` parses an object."""
    decoded = _decode(text)
    try:
        value: JsonValue = _DECODER.decode(decoded)
    except json.JSONDecodeError as error:
        message, at = json_fault(error)
        deep = _depth_exceeded(decoded)
        if deep is not None and deep < at:  # Python's own depth limit depends on its version
            raise _too_deep(decoded) from None
        raise EventError(f"not JSON: {message} at {_line_and_column(decoded, at)}") from None
    except _NotJson as error:
        raise EventError(f"not JSON: {error} at {_line_and_column(decoded, _find_word(decoded, str(error)))}") from None
    except RecursionError:
        raise _too_deep(decoded) from None
    if decoded.count("{") + decoded.count("[") > MAXIMUM_DEPTH and _depth_exceeded(decoded) is not None:
        raise _too_deep(decoded)
    return value


def as_document(value: Mapping[Any, Any]) -> Document:
    """Return a mapping of Python values as a document. Raises `EventError` if it has no JSON form."""
    if isinstance(document := as_json_value(value, MAXIMUM_DEPTH), dict):
        return document
    raise EventError(f"{type_name(document)}, not a JSON object")


def as_json_value(value: object, depth: int = MAXIMUM_DEPTH) -> JsonValue:
    """Return a Python value with its numbers as `Number`, its mappings as `dict` and its lists and tuples as `list`."""
    if type(value) in _AS_IS:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float, Decimal)):
        try:
            return Number.from_python(value)
        except ValueError as error:
            raise EventError(str(error)) from None
    if isinstance(value, (Mapping, list, tuple)) and depth == 0:
        raise EventError(f"nested deeper than {MAXIMUM_DEPTH}")
    if isinstance(value, Mapping):
        return {_as_key(key): as_json_value(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json_value(inner, depth - 1) for inner in value]
    raise EventError(f"a {type(value).__name__} has no JSON form: {value!r}")


def write_document(value: object) -> str:
    """Return compact JSON text that always encodes to UTF-8. Numbers are as written; lone surrogates are escaped.

    Accepts a `JsonValue` of any depth up to Python's own limit, and also Python's numbers, tuples and mappings;
    raises `EventError` for a value without a JSON form.
    """
    pieces: list[str] = []
    write_pieces(value, pieces.append)
    text = "".join(pieces)
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def type_name(value: object) -> str:
    """Return the type of a JSON value with its article, for messages: `a string`, `an object`."""
    return next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), f"a {type(value).__name__}")


class _NotJson(Exception):
    """The decoder found NaN or an infinity; the message is that word."""


def _refuse(word: str) -> NoReturn:
    raise _NotJson(word)


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse)


_AS_IS = frozenset((str, bool, type(None), Number))


_TYPE_NAMES: tuple[tuple[Any, str], ...] = (
    (bool, "a boolean"),
    (type(None), "null"),
    (str, "a string"),
    ((Number, int, float, Decimal), "a number"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


def _decode(text: bytes | str) -> str:
    if isinstance(text, str):
        decoded = text
        if not text.isascii() and (lone := _SURROGATE.search(text)):
            raise EventError(f"not text: an unescaped surrogate at {_line_and_column(text, lone.start())}")
    else:
        try:
            decoded = bytes(text).decode("utf-8")
        except UnicodeDecodeError as error:
            raise EventError(f"not UTF-8: byte {error.start} (0x{text[error.start]:02x}), {error.reason}") from None
    if decoded.startswith("\ufeff"):
        raise EventError("not JSON: a byte order mark at line 1, column 1")
    return decoded


def _line_and_column(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def _find_word(text: str, word: str) -> int:
    return next((found.start() for found in _TOKEN.finditer(text) if found[0] == word), 0)


def _depth_exceeded(text: str) -> int | None:
    """Return the position of the first bracket that opens the 129th level; None if there is none."""
    depth = 0
    for found in _TOKEN.finditer(text):
        if found[0] in ("{", "["):
            depth += 1
            if depth > MAXIMUM_DEPTH:
                return found.start()
        elif found[0] in ("}", "]"):
            depth -= 1
    return None


def _too_deep(text: str) -> EventError:
    return EventError(f"nested deeper than {MAXIMUM_DEPTH} at {_line_and_column(text, _depth_exceeded(text) or 0)}")


def _as_key(key: object) -> str:
    if isinstance(key, str):
        return str(key)
    raise EventError(f"{type_name(key)} as a key of an object: {key!r}")


def write_pieces(value: object, put: Callable[[str], None]) -> None:
    """Pass the pieces of a value's JSON text to a function, in order; lone surrogates stay unescaped."""
    if isinstance(value, str):
        put(_quote(value))
    elif isinstance(value, Number):
        put(value.text)
    elif value is None or isinstance(value, bool):
        put("null" if value is None else "true" if value else "false")
    elif isinstance(value, Mapping):
        before = "{"
        for key, inner in value.items():
            put(before + _quote(_as_key(key)) + ":")
            write_pieces(inner, put)
            before = ","
        put("}" if value else "{}")
    elif isinstance(value, (list, tuple)):
        before = "["
        for inner in value:
            put(before)
            write_pieces(inner, put)
            before = ","
        put("]" if value else "[]")
    else:
        put(str(as_json_value(value)))


def json_fault(error: json.JSONDecodeError) -> tuple[str, int]:
    """Return a message that begins in lower case, and the position of the error in the text, from 0.

    Python 3.13 has a separate message and position for a comma before a closing bracket; earlier versions name the
    token that they expect.
    """
    text, at = error.doc, error.pos
    if text[at : at + 1] == ",":
        at += 1 + len(text[at + 1 :]) - len(text[at + 1 :].lstrip())
    before = text[:at].rstrip()
    closed = _CLOSERS.get(text[at : at + 1])
    if closed is not None and before.endswith(","):
        return f"a comma before the end of {closed}", len(before) - 1
    message = "something follows the document" if error.msg == "Extra data" else error.msg.removesuffix(" at")
    return message[0].lower() + message[1:], error.pos
