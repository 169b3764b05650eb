"""Recognises texts that are certainly CloudEvents, and locates their id, source and type.

`event.cloudevent.parse_event` accepts every text that is recognised here, with the same id, source and type, and must
decide about all others; `event.cloudevent.recognise` has the same contract. The whole JSON is checked (`scan.outline`,
`scan.values`). Only plain attributes are recognised: strings of ASCII without escapes, and a boolean or null as the
value of an extension. A source or dataschema may contain only letters, digits and common characters.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventbridge.matching.scan.attributes import (
    DATA,
    EXTENSION,
    ID,
    SOURCE,
    TYPE,
    UNKNOWN,
    VERSION,
    is_allowed,
    member_of,
)
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.leaves import TOO_LONG
from eventbridge.matching.scan.memory import PADDING, address_of, byte_at, int64_at
from eventbridge.matching.scan.outline import outline, room_for_outline
from eventbridge.matching.scan.strings import has_escape
from eventbridge.matching.scan.texts import Texts
from eventbridge.matching.scan.values import (
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    plain_length,
    skip_value,
)

#: The required attributes of every event, one bit each.
_REQUIRED: Final = 1 << ID | 1 << SOURCE | 1 << TYPE | 1 << VERSION

_NINE = ord("9")

#: The maximum number of extensions in a recognised event; each name is compared with those before it.
_MAX_EXTENSIONS: Final = 16


class RecognisedTexts(NamedTuple):
    """For text i: whether it is certainly an event, and where its id, source and type are in the buffer.

    The columns are ID, SOURCE and TYPE. A text that is not recognised has lengths of 0.
    """

    sure: npt.NDArray[np.bool_]
    begin: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]


def recognise_texts(texts: Texts, max_bytes: int) -> RecognisedTexts:
    """Return which texts are certainly events of at most `max_bytes` bytes.

    `PADDING` bytes of any value must be readable after the last text (`scan.texts.TextBuffer`).
    """
    count = len(texts.start)
    found = RecognisedTexts(np.zeros(count, np.bool_), np.zeros((count, 3), np.int64), np.zeros((count, 3), np.int64))
    assert not count or int(texts.end.max()) + PADDING <= len(texts.buffer), "a block of an outline reads 64 bytes"
    _recognise(address_of(texts.buffer), texts.start, texts.end, min(max_bytes, TOO_LONG - 1), *found)
    found.length[~found.sure] = 0
    return found


@compiled
def _recognise(text: int, start: Any, end: Any, max_bytes: int, sure: Any, begin: Any, length: Any) -> None:
    room = np.empty(0, np.int64)
    names = np.empty((_MAX_EXTENSIONS, 2), np.int64)
    for event in range(start.shape[0]):
        first, stop = start[event], end[event]
        if stop - first > max_bytes:
            continue
        if room.shape[0] < room_for_outline(stop - first):
            room = np.empty(2 * room_for_outline(stop - first), np.int64)
        sure[event] = _is_sure(text, first, stop, room.ctypes.data, names, begin[event], length[event])
    room[:1] = 0  # Numba frees an array after its last use, even if its address is still used


@compiled
def _is_repeated(text: int, name: int, size: int, names: Any, count: int) -> bool:
    """Return whether a name equals one of the `count` names before it."""
    for index in range(count):
        if names[index, 1] == size:
            known, same = names[index, 0], 0
            while same < size and byte_at(text, known + same) == byte_at(text, name + same):
                same += 1
            if same == size:
                return True
    return False


@compiled
def _is_sure(text: int, first: int, stop: int, tokens: int, names: Any, begin: Any, length: Any) -> bool:
    """Return whether a text is certainly an event, and record where its id, source and type are.

    `names` is a buffer for the names of extensions.
    """
    count, first_escape, last_escape = outline(text, first, stop, tokens)
    if count < 2 or byte_at(text, int64_at(tokens, 0)) != OPEN_OBJECT:
        return False
    found, extensions, token = 0, 0, 1
    while token < count:
        # 1. The name of a member.
        name = int64_at(tokens, token) + 1
        size = int64_at(tokens, token + 1) - name
        if byte_at(text, name - 1) != QUOTE or byte_at(text, int64_at(tokens, token + 2)) != COLON:
            return False
        member = member_of(text, name, size)  # no known name contains a backslash, nor may that of an extension
        if member == UNKNOWN or (member != EXTENSION and found & (1 << member) != 0):
            return False
        if member == EXTENSION:
            if extensions == _MAX_EXTENSIONS or _is_repeated(text, name, size, names, extensions):
                return False
            names[extensions, 0], names[extensions, 1] = name, size
            extensions += 1
        found |= 1 << member
        token += 3
        # 2. Its value.
        content = int64_at(tokens, token)
        byte = byte_at(text, content)
        token += 1
        if byte == QUOTE:
            content += 1
            size = int64_at(tokens, token) - content
            token += 1
            if member != DATA:
                near_escapes = content <= last_escape and content + size > first_escape
                if near_escapes and has_escape(text, content, content + size):
                    return False
                if not is_allowed(text, content, size, member):
                    return False
                if member <= TYPE:
                    begin[member], length[member] = content, size
        elif byte == OPEN_OBJECT or byte == OPEN_ARRAY:
            token = skip_value(text, tokens, token - 1, count, 1) if member == DATA else -1
            if token < 0:
                return False
        else:
            if plain_length(text, content, int64_at(tokens, token)) == 0:
                return False
            if member != DATA and (member != EXTENSION or byte <= _NINE):
                return False
        # 3. Another member, or the end.
        if token >= count:
            return False
        byte = byte_at(text, int64_at(tokens, token))
        token += 1
        if byte == CLOSE_OBJECT:
            return token == count and found & _REQUIRED == _REQUIRED
        if byte != COMMA:
            return False
    return False
