"""Compiled code that writes parts of an event as `eventbridge.event.json_document.write_document` writes their values.

Strings lose unnecessary escapes, objects and arrays lose their white space, and numbers keep their text. Every function
writes at `written` and returns the position after its output, or `HANDED_BACK` if the Python renderer must write it.
The output has at most twice the bytes of the part plus 2; up to 31 bytes after it may be overwritten.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.leaves import ESCAPED, STRING
from eventbridge.matching.scan.marks import string_marks
from eventbridge.matching.scan.memory import (
    byte_at,
    copy_bytes,
    load64,
    low_bytes,
    lowest_bit,
    put_byte,
    put_word,
    word_at,
)
from eventbridge.matching.scan.parts import ARRAY, OBJECT
from eventbridge.matching.scan.strings import has_escape, unescape
from eventbridge.matching.scan.values import quick_string_end, string_end

HANDED_BACK: Final = -1

KEYS: Final = 1024
"""The maximum number of keys in an object and the objects around it; with more, the delivery is handed back."""

_QUOTE, _BACKSLASH, _COLON, _SPACE, _U = ord('"'), ord("\\"), ord(":"), ord(" "), ord("u")
_OPEN_OBJECT, _CLOSE_OBJECT = ord("{"), ord("}")
_FIRST_OF_SURROGATE, _SECOND_OF_SURROGATE = 0xED, 0xA0  # 0xED, and a second byte from 0xA0 on, begin a surrogate
_NONE = np.uint64(0)
_MIXER = np.uint64(0x9E37_79B9_7F4A_7C15)


class WriteBuffers(NamedTuple):
    """The addresses of work buffers; `text` and `compact` have room for the longest part and 64 more bytes."""

    text: int
    compact: int
    keys: int  # KEYS words
    objects: int  # MAXIMUM_DEPTH + 1 words


@compiled
def write_value(kind: int, text: int, position: int, length: int, into: int, written: int, room: Any) -> Any:
    """Write a part as a JSON value; `room` is a `WriteBuffers`."""
    if kind == STRING or kind == ESCAPED:
        return _write_quoted(kind, text, position, length, into, written, room)
    if kind == OBJECT or kind == ARRAY:
        return write_compact(text, position, length, into, written, room)
    return copy_bytes(into, written, text, position, length)


@compiled
def write_in_string(kind: int, text: int, position: int, length: int, into: int, written: int, room: Any) -> Any:
    """Write a part inside a JSON string: a string's content, or the JSON of any other value, escaped."""
    if kind == STRING or kind == ESCAPED:
        return write_string(kind, text, position, length, into, written, room)
    if kind == OBJECT or kind == ARRAY:
        compact = write_compact(text, position, length, room.compact, 0, room)
        return HANDED_BACK if compact < 0 else escape_json(room.compact, compact, into, written)
    return copy_bytes(into, written, text, position, length)


@compiled
def write_as_text(kind: int, text: int, position: int, length: int, into: int, written: int, room: Any) -> Any:
    """Write a part as plain text; hand it back if it contains an unpaired surrogate, which text cannot represent."""
    if kind == OBJECT or kind == ARRAY:
        return write_compact(text, position, length, into, written, room)
    if kind != ESCAPED:
        return copy_bytes(into, written, text, position, length)
    stop = written + unescape(text, position, length, into + written)
    for index in range(written, stop):
        if byte_at(into, index) == _FIRST_OF_SURROGATE and byte_at(into, index + 1) >= _SECOND_OF_SURROGATE:
            return HANDED_BACK
    return stop


@compiled
def write_string(kind: int, text: int, position: int, length: int, into: int, written: int, room: Any) -> Any:
    """Write a string's content with only the escapes that it needs."""
    if kind == STRING:
        return copy_bytes(into, written, text, position, length)
    return escape(room.text, unescape(text, position, length, room.text), into, written)


@compiled
def _write_quoted(kind: int, text: int, position: int, length: int, into: int, written: int, room: Any) -> Any:
    put_byte(into, written, _QUOTE)
    written = write_string(kind, text, position, length, into, written + 1, room)
    put_byte(into, written, _QUOTE)
    return written + 1


@compiled
def escape(text: int, length: int, into: int, written: int) -> Any:
    """Write characters as the content of a JSON string, with short escapes where they exist, else \\u escapes."""
    index = 0
    while index < length:
        byte = byte_at(text, index)
        index += 1
        if byte == _QUOTE or byte == _BACKSLASH:
            written = _put_short(into, written, byte)
        elif byte < _SPACE:
            letter = _letter_of(byte)
            written = _put_short(into, written, letter) if letter else _put_code(into, written, byte)
        elif byte == _FIRST_OF_SURROGATE and byte_at(text, index) >= _SECOND_OF_SURROGATE:
            low = (byte_at(text, index) & 63) << 6 | byte_at(text, index + 1) & 63
            written = _put_code(into, written, 0xD000 | low)
            index += 2
        else:
            put_byte(into, written, byte)
            written += 1
    return written


@compiled
def _put_short(into: int, written: int, letter: int) -> Any:
    put_byte(into, written, _BACKSLASH)
    put_byte(into, written + 1, letter)
    return written + 2


@compiled
def _put_code(into: int, written: int, code: int) -> Any:
    written = _put_short(into, written, _U)
    for shift in range(12, -1, -4):
        put_byte(into, written, hex_digit(code >> shift & 15))
        written += 1
    return written


@compiled
def hex_digit(value: int) -> Any:
    """Return the lower-case hexadecimal digit of 0 to 15."""
    return 48 + value if value < 10 else 87 + value


@compiled
def _letter_of(byte: int) -> Any:
    """Return the letter of a control character's short escape, 0 if there is none."""
    if byte == 10:
        return 110  # n
    if byte == 13:
        return 114  # r
    if byte == 9:
        return 116  # t
    if byte == 8:
        return 98  # b
    return 102 if byte == 12 else 0  # f


@compiled
def escape_json(text: int, length: int, into: int, written: int) -> Any:
    """Write compact JSON, which has no control characters, as the content of a JSON string."""
    position = 0
    while position < length:
        marks = string_marks(text, position)
        size = min(length - position, lowest_bit(marks) if marks != _NONE else 32)
        written = copy_bytes(into, written, text, position, size)
        position += size
        if marks != _NONE and position < length:
            written = _put_short(into, written, byte_at(text, position))
            position += 1
    return written


@compiled
def write_compact(text: int, position: int, length: int, into: int, written: int, room: Any) -> Any:
    """Write an object or array without white space or unnecessary escapes; hand it back if a key occurs twice."""
    stop = position + length
    keys: Any = 0
    depth = 0
    put_word(room.objects, 0, np.uint64(0))
    while position < stop:
        byte = byte_at(text, position)
        if byte == _QUOTE:
            end = quick_string_end(text, position + 1)
            kind = STRING
            if end < 0:
                end = string_end(text, position + 1, stop)
                kind = ESCAPED if has_escape(text, position + 1, end) else STRING
            first = written + 1
            written = _write_quoted(kind, text, position + 1, end - position - 1, into, written, room)
            position = _skip_to(text, end + 1, stop)
            if position < stop and byte_at(text, position) == _COLON:
                hashed = _hash(into, first, written - 1 - first)
                for key in range(np.int64(word_at(room.objects, depth)), keys):
                    if word_at(room.keys, key) == hashed:
                        return HANDED_BACK
                if keys == KEYS:
                    return HANDED_BACK
                put_word(room.keys, keys, hashed)
                keys += 1
        elif byte <= _SPACE:
            position += 1
        else:
            put_byte(into, written, byte)
            written += 1
            position += 1
            if byte == _OPEN_OBJECT:
                depth += 1
                put_word(room.objects, depth, np.uint64(keys))
            elif byte == _CLOSE_OBJECT:
                keys = np.int64(word_at(room.objects, depth))
                depth -= 1
    return written


@compiled
def _skip_to(text: int, position: int, stop: int) -> Any:
    while position < stop and byte_at(text, position) <= _SPACE:
        position += 1
    return position


@compiled
def _hash(text: int, position: int, length: int) -> Any:
    value = np.uint64(length) * _MIXER
    for index in range(position, position + length, 8):
        word = low_bytes(load64(text, index), min(8, position + length - index))
        value = (value ^ word) * _MIXER
        value ^= value >> np.uint64(29)
    return value
