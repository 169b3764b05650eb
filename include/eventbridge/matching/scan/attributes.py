"""Compiled checks of CloudEvents attributes: which attribute a name is, and whether a value is certainly valid."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import byte_at
from eventbridge.matching.scan.values import COLON

#: The attributes that are located in each event, in the order of the columns of `RecognisedTexts`.
ID: Final = 0
SOURCE: Final = 1
TYPE: Final = 2

VERSION: Final = 3
SUBJECT: Final = 4
TIME: Final = 5
MEDIA_TYPE: Final = 6
SCHEMA: Final = 7
DATA: Final = 8
EXTENSION: Final = 9
UNKNOWN: Final = -1


def _name_bytes(name: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(name.encode(), np.uint8)


_ID, _SOURCE, _TYPE = _name_bytes("id"), _name_bytes("source"), _name_bytes("type")
_SPECVERSION, _SUBJECT_NAME, _TIME_NAME = _name_bytes("specversion"), _name_bytes("subject"), _name_bytes("time")
_DATACONTENTTYPE, _DATASCHEMA, _DATA_NAME = (
    _name_bytes("datacontenttype"),
    _name_bytes("dataschema"),
    _name_bytes("data"),
)
_VERSION_1 = _name_bytes("1.0")

# The kinds of characters, one bit each.
_PRINTABLE: Final = 1
_NAME: Final = 2  # allowed in an attribute's name
_SEGMENT: Final = 4  # allowed in a segment of a path, and in a host name
_SCHEME: Final = 8
_LETTER: Final = 16
_TOKEN: Final = 32  # allowed in a media type
_DIGIT: Final = 64


def _kinds() -> npt.NDArray[np.uint8]:
    digits, small = "0123456789", "abcdefghijklmnopqrstuvwxyz"
    letters = small + small.upper()
    found = np.zeros(256, np.uint8)
    found[0x20:0x7F] |= _PRINTABLE
    for kind, characters in (
        (_NAME, small + digits),
        (_SEGMENT, letters + digits + "_-.~!$&'()*+,;="),
        (_SCHEME, letters + digits + "+.-"),
        (_LETTER, letters),
        (_TOKEN, letters + digits + "_!#$%&'*+-.^`|{}~"),
        (_DIGIT, digits),
    ):
        found[np.frombuffer(characters.encode(), np.uint8)] |= kind
    return found


_KINDS = _kinds()
_DASH, _DOT, _SLASH, _AT, _PLUS = ord("-"), ord("."), ord("/"), ord("@"), ord("+")
_CAPITAL_T, _CAPITAL_Z = ord("T"), ord("Z")


@compiled
def member_of(text: int, name: int, size: int) -> int:
    """Return the member that a name denotes: EXTENSION if it is a valid extension name, UNKNOWN if it is none."""
    if size == 2 and _is_word(text, name, _ID):
        return ID
    if size == 4:
        if _is_word(text, name, _TYPE):
            return TYPE
        if _is_word(text, name, _DATA_NAME):
            return DATA
        if _is_word(text, name, _TIME_NAME):
            return TIME
    if size == 6 and _is_word(text, name, _SOURCE):
        return SOURCE
    if size == 7 and _is_word(text, name, _SUBJECT_NAME):
        return SUBJECT
    if size == 10 and _is_word(text, name, _DATASCHEMA):
        return SCHEMA
    if size == 11 and _is_word(text, name, _SPECVERSION):
        return VERSION
    if size == 15 and _is_word(text, name, _DATACONTENTTYPE):
        return MEDIA_TYPE
    return EXTENSION if size > 0 and _all_of(text, name, size, _NAME) else UNKNOWN


@compiled
def _is_word(text: int, position: int, word: Any) -> bool:
    for index in range(word.shape[0]):
        if byte_at(text, position + index) != word[index]:
            return False
    return True


@compiled
def _all_of(text: int, position: int, size: int, kinds: int) -> bool:
    """Return whether each character has one of the kinds."""
    for index in range(position, position + size):
        if _KINDS[byte_at(text, index)] & kinds == 0:
            return False
    return True


@compiled
def is_allowed(text: int, position: int, size: int, member: int) -> Any:
    """Return whether a text without escapes is certainly allowed as a member's value."""
    if not _all_of(text, position, size, _PRINTABLE):
        return False
    if member == EXTENSION:
        return True
    if size == 0:
        return False
    if member == SOURCE or member == SCHEMA:
        return _is_reference(text, position, size, member == SCHEMA)
    if member == VERSION:
        return size == 3 and _is_word(text, position, _VERSION_1)
    if member == TIME:
        return _is_time(text, position, size)
    if member == MEDIA_TYPE:
        return _is_media_type(text, position, size)
    return True  # id, type, subject


@compiled
def _is_reference(text: int, position: int, size: int, absolute: bool) -> bool:
    """Return whether a text is certainly a URI reference (RFC 3986), such as `/a/b`, `//host/a` or `urn:a:b`.

    If `absolute` is true, it must have a scheme.
    """
    stop = position + size
    colon = position
    while colon < stop and _KINDS[byte_at(text, colon)] & _SCHEME != 0:
        colon += 1
    path, others = position, False
    if colon < stop and byte_at(text, colon) == COLON:
        if _KINDS[byte_at(text, position)] & _LETTER == 0:
            return False
        path = colon + 1
        # A path may contain `:` and `@`; after `//` they would introduce a port or follow a user.
        others = not (path + 1 < stop and byte_at(text, path) == _SLASH and byte_at(text, path + 1) == _SLASH)
    elif absolute:
        return False
    for index in range(path, stop):
        byte = byte_at(text, index)
        if _KINDS[byte] & _SEGMENT == 0 and byte != _SLASH and not (others and (byte == COLON or byte == _AT)):
            return False
    return True


@compiled
def _is_media_type(text: int, position: int, size: int) -> bool:
    """Return whether a text is a media type without parameters."""
    slash = position
    while slash < position + size and byte_at(text, slash) != _SLASH:
        slash += 1
    behind = position + size - slash - 1
    return (
        slash > position
        and behind > 0
        and _all_of(text, position, slash - position, _TOKEN)
        and _all_of(text, slash + 1, behind, _TOKEN)
    )


@compiled
def _is_time(text: int, position: int, size: int) -> Any:
    """Return whether a text is certainly a time of RFC 3339 such as `2013-01-01T10:17:00.5Z`, without leap seconds."""
    if size < 20 or byte_at(text, position + 4) != _DASH or byte_at(text, position + 7) != _DASH:
        return False
    if byte_at(text, position + 10) != _CAPITAL_T or byte_at(text, position + 13) != COLON:
        return False
    if byte_at(text, position + 16) != COLON or not _all_of(text, position, 4, _DIGIT):
        return False
    month, day = _two_digits(text, position + 5), _two_digits(text, position + 8)
    # The 29th of February is never certain here, because only the Python code checks for leap years.
    longest = 28 if month == 2 else 30 + ((month + (month >> 3)) & 1)
    if month < 1 or month > 12 or day < 1 or day > longest:
        return False
    hour, minute = _two_digits(text, position + 11), _two_digits(text, position + 14)
    second = _two_digits(text, position + 17)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return False
    stop, at = position + size, position + 19
    if byte_at(text, at) == _DOT:
        at += 1
        fraction = at
        while at < stop and _KINDS[byte_at(text, at)] & _DIGIT != 0:
            at += 1
        if at == fraction:
            return False
    if at == stop - 1:
        return byte_at(text, at) == _CAPITAL_Z
    if at != stop - 6 or byte_at(text, at + 3) != COLON:
        return False
    hours, minutes = _two_digits(text, at + 1), _two_digits(text, at + 4)
    return (byte_at(text, at) == _PLUS or byte_at(text, at) == _DASH) and 0 <= hours < 24 and 0 <= minutes < 60


@compiled
def _two_digits(text: int, position: int) -> Any:
    """Return the number that two digits spell, or -1 for anything else."""
    if not _all_of(text, position, 2, _DIGIT):
        return -1
    return 10 * (byte_at(text, position) - 48) + byte_at(text, position + 1) - 48
