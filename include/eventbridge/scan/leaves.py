"""The one pass over an event: every byte of its JSON is checked, and the leaves that somebody wants are noted.

The scanner walks the event with a stack of open objects and arrays. Each stands at a node of the path tree, or at
`NOWHERE`, where nobody wants anything: then its text is only checked. What is noted of a leaf is where its text lies,
never a copy. Arrays are transparent: an element stands at the node of its array.

Invariants: a leaf is noted only inside the text of its own event; the leaves of a malformed event are taken back; of
duplicate keys the leaves of the last one stay. The scanner reads at most 34 bytes behind the end of an event.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from eventbridge.document import MAXIMUM_DEPTH
from eventbridge.scan.memory import JIT, byte_at, int32_at
from eventbridge.scan.numbers import number_end
from eventbridge.scan.strings import is_utf8, string_end, unescape
from eventbridge.scan.tree import find_edge

# What a leaf is.
NULL: Final = 0
TRUE: Final = 1
FALSE: Final = 2
NUMBER: Final = 3
STRING: Final = 4
ESCAPED: Final = 5  # a string whose text holds escapes

# Where a leaf lies in arrays: in none (or only as a scalar element), in an element of one, deeper.
FREE: Final = -1
DEEP: Final = -2

# What the scanner says of an event.
MALFORMED: Final = 0
FLAT: Final = 1  # every noted leaf is FREE
NESTED: Final = 2

NOWHERE: Final = -1

_QUOTE, _BACKSLASH, _COMMA, _COLON = ord('"'), ord("\\"), ord(","), ord(":")
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = ord("{"), ord("}"), ord("["), ord("]")
_MINUS, _NINE, _N, _T, _F = ord("-"), ord("9"), ord("n"), ord("t"), ord("f")


class Leaves(NamedTuple):
    """The noted leaves of a block of events, event after event in the order of their text.

    `node` is the leaf's node in the path tree, -1 for one that a later duplicate key has replaced. A string's
    `position` and `length` are those of its content, without the quotes. `array` is FREE, DEEP or the number of the
    array (per event) in whose `element` the leaf lies.
    """

    node: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]
    array: npt.NDArray[np.int32]
    element: npt.NDArray[np.int32]


def room_for_leaves(count: int) -> Leaves:
    """Return room for so many leaves."""
    integers = [np.empty(count, np.int32) for _ in range(4)]
    kinds, positions = np.empty(count, np.uint8), np.empty(count, np.int64)
    return Leaves(integers[0], kinds, positions, integers[1], integers[2], integers[3])


@njit(**JIT)
def scan(
    text: int, start: Any, end: Any, tree: Any, leaves: Any, first_leaf: Any, status: Any, first_event: int
) -> Any:
    """Check events and note their leaves, from `first_event` on; return the first event that was not done.

    That is the number of events, or less if `leaves` has no more room: call again with more. Of event i
    `first_leaf[i]:first_leaf[i + 1]` are its leaves, and `status[i]` is MALFORMED, FLAT or NESTED.
    """
    node_of = np.empty(MAXIMUM_DEPTH, np.int32)
    is_array = np.empty(MAXIMUM_DEPTH, np.bool_)
    number_of = np.empty(MAXIMUM_DEPTH, np.int32)  # of an array
    element_of = np.empty(MAXIMUM_DEPTH, np.int32)  # the element an array is at
    place_array = np.empty(MAXIMUM_DEPTH, np.int32)
    place_element = np.empty(MAXIMUM_DEPTH, np.int32)
    keys_seen = np.empty(MAXIMUM_DEPTH, np.uint64)  # bit: edge modulo 64
    first_inside = np.empty(MAXIMUM_DEPTH, np.int64)  # the first leaf noted inside an object
    key_text = np.empty(0, np.uint8)
    room = leaves.node.shape[0]
    count = first_leaf[first_event]
    for event in range(first_event, start.shape[0]):
        first_leaf[event] = count
        first = count
        position, stop = start[event], end[event]
        kind_of_event = FLAT
        arrays = 0
        good = False
        depth = 0
        position = _skip_space(text, position)
        if position < stop and byte_at(text, position) == _OPEN_OBJECT and is_utf8(text, position, stop):
            node_of[0], is_array[0], keys_seen[0], first_inside[0] = 0, False, 0, count
            place_array[0], place_element[0] = FREE, 0
            position = _skip_space(text, position + 1)
            if byte_at(text, position) == _CLOSE_OBJECT:
                good, depth = True, -1
                position += 1
        else:
            depth = -1
        while depth >= 0:
            # 1. A key, or the element that the array is at: which node stands the value at?
            node = node_of[depth]
            if not is_array[depth]:
                if byte_at(text, position) != _QUOTE:
                    break
                key = position + 1
                position, escaped = string_end(text, key, stop)
                if position < 0:
                    break
                if node >= 0:
                    if escaped:
                        if key_text.shape[0] < position - key + 64:
                            key_text = np.zeros(2 * (position - key) + 64, np.uint8)
                        unescaped = unescape(text, key, position - key, key_text.ctypes.data)
                        edge = find_edge(tree, node, key_text.ctypes.data, 0, unescaped)
                    else:
                        edge = find_edge(tree, node, text, key, position - key)
                    node = NOWHERE
                    if edge >= 0:
                        node = int32_at(tree.child, edge)
                        bit = np.uint64(1) << np.uint64(edge & 63)
                        if keys_seen[depth] & bit:  # perhaps a duplicate: the last one counts
                            for leaf in range(first_inside[depth], count):
                                if node <= leaves.node[leaf] <= int32_at(tree.last, node):
                                    leaves.node[leaf] = NOWHERE
                        keys_seen[depth] |= bit
                position = _skip_space(text, position + 1)
                if byte_at(text, position) != _COLON:
                    break
                position = _skip_space(text, position + 1)
            # 2. The value.
            byte = byte_at(text, position)
            kind = NUMBER
            from_position = position
            length = np.int64(0)
            if byte == _QUOTE:
                from_position += 1
                position, escaped = string_end(text, from_position, stop)
                if position < 0:
                    break
                length = position - from_position
                position += 1
                kind = ESCAPED if escaped else STRING
            elif byte == _OPEN_OBJECT or byte == _OPEN_ARRAY:
                if depth + 1 == MAXIMUM_DEPTH:
                    break
                depth += 1
                node_of[depth] = node
                is_array[depth] = byte == _OPEN_ARRAY
                if node >= 0:
                    place_array[depth], place_element[depth] = place_array[depth - 1], place_element[depth - 1]
                    if is_array[depth - 1]:
                        place_element[depth] = element_of[depth - 1]
                        place_array[depth] = number_of[depth - 1] if place_array[depth] == FREE else DEEP
                    if byte == _OPEN_ARRAY:
                        number_of[depth], element_of[depth] = arrays, 0
                        arrays += 1
                    else:
                        keys_seen[depth], first_inside[depth] = 0, count
                position = _skip_space(text, position + 1)
                if byte_at(text, position) != byte + 2:  # "{" and "}", "[" and "]" are two apart
                    continue
                position += 1
                depth -= 1
                node = NOWHERE
            elif byte <= _NINE:
                position = number_end(text, position)
                if position < 0:
                    break
                length = position - from_position
            else:
                length = _word_length(text, position)
                if length == 0:
                    break
                kind = TRUE if byte == _T else FALSE if byte == _F else NULL
                position += length
            if node >= 0 and int32_at(tree.path, node) >= 0:
                if count == room:
                    first_leaf[event] = first
                    return event
                leaves.node[count], leaves.kind[count] = node, kind
                leaves.position[count], leaves.length[count] = from_position, length
                leaves.array[count], leaves.element[count] = place_array[depth], place_element[depth]
                if place_array[depth] != FREE:
                    kind_of_event = NESTED
                count += 1
            # 3. Behind a value: a comma and the next, or the end of what is open.
            more = False
            while True:
                byte = byte_at(text, position)
                if byte <= 32:
                    position = _skip_space(text, position)
                    byte = byte_at(text, position)
                if byte == _COMMA:
                    position = _skip_space(text, position + 1)
                    if is_array[depth]:
                        element_of[depth] += 1
                    more = True
                    break
                if byte != (_CLOSE_ARRAY if is_array[depth] else _CLOSE_OBJECT):
                    break
                position += 1
                depth -= 1
                if depth < 0:
                    good = True
                    break
            if not more:
                break
        if good and _skip_space(text, position) >= stop and position <= stop:
            status[event] = kind_of_event
        else:
            status[event] = MALFORMED
            count = first
    first_leaf[start.shape[0]] = count
    return start.shape[0]


@njit(**JIT)
def _skip_space(text: int, position: int) -> int:
    while byte_at(text, position) <= 32 and (
        byte_at(text, position) == 32
        or byte_at(text, position) == 10
        or byte_at(text, position) == 13
        or byte_at(text, position) == 9
    ):
        position += 1
    return position


@njit(**JIT)
def _word_length(text: int, position: int) -> int:
    """Return the length of the word null, true or false at `position`, 0 if there is none."""
    first, second, third, fourth = (
        byte_at(text, position),
        byte_at(text, position + 1),
        byte_at(text, position + 2),
        byte_at(text, position + 3),
    )
    if first == _T:
        return 4 if second == 114 and third == 117 and fourth == 101 else 0
    if first == _N:
        return 4 if second == 117 and third == 108 and fourth == 108 else 0
    if first == _F:
        return 5 if second == 97 and third == 108 and fourth == 115 and byte_at(text, position + 4) == 101 else 0
    return 0
