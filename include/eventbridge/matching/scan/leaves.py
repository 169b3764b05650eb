"""Scans events: validates their JSON and records the requested leaves.

The scanner walks from token to token of the event's outline (`scan.outline`) with a stack of open objects and arrays.
Each value is at a node of the path tree, or at `NOWHERE` if no path leads to it: then its text is only validated. A
leaf is recorded as a range of the text, never as a copy. Arrays are transparent: an element is at the node of its
array.

Invariants: a recorded leaf is inside the text of its own event. A malformed event has no leaves. Of duplicate keys, the
last one has leaves. The scanner reads at most `PADDING` bytes after the end of an event.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventbridge.event.json_document import MAXIMUM_DEPTH
from eventbridge.matching.scan.compiled import compiled
from eventbridge.matching.scan.memory import PADDING, byte_at, int32_at, int64_at, put_word
from eventbridge.matching.scan.outline import outline, room_for_outline
from eventbridge.matching.scan.strings import has_escape, unescape
from eventbridge.matching.scan.tree import find_edge
from eventbridge.matching.scan.values import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    plain_length,
    skip_value,
)

# The kinds of leaves.
NULL: Final = 0
TRUE: Final = 1
FALSE: Final = 2
NUMBER: Final = 3
STRING: Final = 4
ESCAPED: Final = 5  # a string with escapes

# The position of a leaf in arrays: FREE in none (or only as a scalar element), DEEP in an element inside an element.
FREE: Final = -1
DEEP: Final = -2

# The scanner's result for an event.
MALFORMED: Final = 0
FLAT: Final = 1  # every recorded leaf is FREE
NESTED: Final = 2

NOWHERE: Final = -1

TOO_LONG: Final = 1 << 31
"""A text of this many bytes or more counts as malformed, because lengths are stored in 32 bits."""

_NINE, _T, _F = ord("9"), ord("t"), ord("f")


class Leaves(NamedTuple):
    """The recorded leaves of a block of events, in the order of their text.

    `node` is the leaf's node in the path tree, or NOWHERE if a later duplicate key replaced it. A string's `position`
    and `length` are those of its content, without the quotes. `array` is FREE, DEEP, or the number of the array within
    the event whose element number `element` contains the leaf.
    """

    node: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]
    array: npt.NDArray[np.int32]
    element: npt.NDArray[np.int32]


def room_for_leaves(count: int) -> Leaves:
    """Return uninitialised arrays for this many leaves."""
    integers = [np.empty(count, np.int32) for _ in range(4)]
    kinds, positions = np.empty(count, np.uint8), np.empty(count, np.int64)
    return Leaves(integers[0], kinds, positions, integers[1], integers[2], integers[3])


@compiled
def scan(
    text: int, start: Any, end: Any, tree: Any, leaves: Any, first_leaf: Any, status: Any, first_event: int
) -> Any:
    """Check events and record their leaves, from `first_event` on; return the first event that was not processed.

    That is the number of events, or less if `leaves` is full: then call again with more room.
    `first_leaf[i]:first_leaf[i + 1]` are the leaves of event i, and `status[i]` is MALFORMED, FLAT or NESTED.
    """
    frames_room = np.empty(8 * MAXIMUM_DEPTH, np.int64)
    frames = frames_room.ctypes.data
    tokens_room = np.empty(0, np.int64)
    tokens = tokens_room.ctypes.data
    # Per node: the object that last had a key leading there, and the first leaf after that key. The leaves of one key
    # are adjacent, so the cost of a duplicate key is linear in the leaves that it replaces.
    nodes = int32_at(tree.last, 0) + 1
    object_of, first_of = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    objects = 0
    room = leaves.node.shape[0]
    count = first_leaf[first_event]
    for event in range(first_event, start.shape[0]):
        first_leaf[event] = count
        first = count
        begin, stop = start[event], end[event]
        if stop - begin >= TOO_LONG:
            status[event] = MALFORMED
            continue
        if tokens_room.shape[0] < room_for_outline(stop - begin):
            tokens_room = np.empty(2 * room_for_outline(stop - begin), np.int64)
            tokens = tokens_room.ctypes.data
        token_count, first_escape, last_escape = outline(text, begin, stop, tokens)
        token = 0
        # The state of the innermost open object or array at a node; `frames` has that of the outer ones.
        depth, node, in_array = 0, 0, False
        array, element, position, position_element = 0, 0, FREE, 0
        objects += 1
        number = objects
        kind_of_event, arrays = FLAT, 0
        good, walking = False, False
        if token_count > 1 and byte_at(text, int64_at(tokens, 0)) == OPEN_OBJECT:
            if byte_at(text, int64_at(tokens, 1)) == CLOSE_OBJECT:
                good = True
                token = 2
            else:
                walking = True
                token = 1
        while walking:
            # 1. A key, or the current element of the array: at which node is the value?
            if token >= token_count:
                break
            below = node
            if not in_array:
                key = int64_at(tokens, token) + 1
                if byte_at(text, key - 1) != QUOTE:
                    break
                length = int64_at(tokens, token + 1) - key
                if key <= last_escape and key + length > first_escape:
                    edge = _find_escaped(tree, node, text, key, length)
                else:
                    edge = find_edge(tree, node, text, key, length)
                below = NOWHERE
                if edge >= 0:
                    below = int32_at(tree.child, edge)
                    if object_of[below] == number:  # a duplicate key: the last one counts
                        last = int32_at(tree.last, below)
                        leaf = first_of[below]
                        while leaf < count and (below <= leaves.node[leaf] <= last or leaves.node[leaf] == NOWHERE):
                            leaves.node[leaf] = NOWHERE
                            leaf += 1
                    object_of[below], first_of[below] = number, count
                if byte_at(text, int64_at(tokens, token + 2)) != COLON:
                    break
                token += 3
            # 2. The value.
            content = int64_at(tokens, token)
            token += 1
            byte = byte_at(text, content)
            kind = NUMBER
            length = 0
            if byte == QUOTE:
                content += 1
                length = int64_at(tokens, token) - content
                token += 1
                kind = STRING
                if content <= last_escape and content + length > first_escape:
                    if has_escape(text, content, content + length):
                        kind = ESCAPED
            elif byte == OPEN_OBJECT or byte == OPEN_ARRAY:
                if below < 0:
                    token = skip_value(text, tokens, token - 1, token_count, depth + 1)
                    if token < 0:
                        break
                elif depth + 1 == MAXIMUM_DEPTH:
                    break
                else:
                    frame = frames + 64 * depth
                    put_word(frame, 0, np.uint64(2 * node + in_array))
                    put_word(frame, 1, np.uint64(array))
                    put_word(frame, 2, np.uint64(element))
                    put_word(frame, 3, np.uint64(position))
                    put_word(frame, 4, np.uint64(position_element))
                    put_word(frame, 5, np.uint64(number))
                    depth += 1
                    if in_array:
                        position = array if position == FREE else DEEP
                        position_element = element
                    node, in_array = below, byte == OPEN_ARRAY
                    objects += 1
                    number = objects
                    if in_array:
                        array, element = arrays, 0
                        arrays += 1
                    if byte_at(text, int64_at(tokens, token)) != byte + 2:  # "{" and "}", "[" and "]" are two apart
                        continue
                    below = NOWHERE  # it is empty: step 3 reads its closing bracket as if a value preceded it
            else:
                length = plain_length(text, content, int64_at(tokens, token))
                if length == 0:
                    break
                if byte > _NINE:
                    kind = TRUE if byte == _T else FALSE if byte == _F else NULL
            if below >= 0 and int32_at(tree.path, below) >= 0:
                if count == room:
                    first_leaf[event] = first
                    return event
                leaves.node[count], leaves.kind[count] = below, kind
                leaves.position[count], leaves.length[count] = content, length
                leaves.array[count], leaves.element[count] = position, position_element
                if position != FREE:
                    kind_of_event = NESTED
                count += 1
            # 3. After a value: a comma before the next value, or the end of an open object or array.
            walking = False
            while token < token_count:
                byte = byte_at(text, int64_at(tokens, token))
                token += 1
                if byte == COMMA:
                    element += 1
                    walking = True
                    break
                if byte != (CLOSE_ARRAY if in_array else CLOSE_OBJECT):
                    break
                if depth == 0:
                    good = True
                    break
                depth -= 1
                frame = frames + 64 * depth
                node = int64_at(frame, 0) >> 1
                in_array = int64_at(frame, 0) & 1 != 0
                array, element = int64_at(frame, 1), int64_at(frame, 2)
                position, position_element = int64_at(frame, 3), int64_at(frame, 4)
                number = int64_at(frame, 5)
        if good and token == token_count:
            status[event] = kind_of_event
        else:
            status[event] = MALFORMED
            count = first
    first_leaf[start.shape[0]] = count
    frames_room[0] = 0  # Numba frees an array after its last use, even if its address is still used
    tokens_room[:1] = 0
    return start.shape[0]


@compiled
def _find_escaped(tree: Any, node: int, text: int, position: int, length: int) -> Any:
    """Return what `find_edge` returns for a key that may contain escapes."""
    room = np.empty(length + PADDING, np.uint8)
    plain = room.ctypes.data
    edge = find_edge(tree, node, plain, 0, unescape(text, position, length, plain))
    room[0] = 0  # Numba frees an array after its last use
    return edge
