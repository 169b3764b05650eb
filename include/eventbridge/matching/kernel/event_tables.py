"""The state of the current event: its leaves by path, their classes, and the results of rules so far."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.scan.leaves import Leaves, room_for_leaves
from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.texts import TextBuffer
from eventbridge.matching.scan.words import VECTOR_WORDS

# Positions in the list of addresses that EventTables has; the last two hold plain numbers.
(
    LEAF_ROW,  # per leaf: the row of its class
    LEAF_NEXT,  # per leaf: the next leaf at the same path, or -1
    LEAF_ARRAY,
    LEAF_ELEMENT,
    PATH_FIRST_LEAF,  # per path: the first leaf, or -1
    PATH_CURRENT,  # per path: the row of the class of the first leaf, or of the class for no leaf
    PATH_CHAIN,  # per path: the first further class, or -1
    PATH_NESTED,  # per path: the stamp of the last event with a leaf in an array element
    CHAIN_ROW,
    CHAIN_NEXT,
    ROW_STAMP,  # per row: the stamp of the last event that used it
    ELEMENT_COUNT,  # per element of the current array: the number of fields that it meets
    RULE_YES,  # per rule: the stamp of the last event with a positive branch that holds
    RULE_NO,
    RULE_BACK,
    TOUCHED_RULES,
    COLUMN_ADDRESS,  # per operand of the AND: where the column's row begins
    COLUMN_PATH,
    COLUMN_OFFSET,
    CANDIDATES,  # a row: the branches that a leaf at their anchor admits, and those without an anchor
    PRESENT_PATHS,
    SINGLE_ADDRESS,  # per column whose path has one class: where its row begins
    CHAINED_COLUMNS,  # the columns whose path has several classes
    LEFT,  # the current words after the AND
    JOINED,  # the OR of the current words of a chain's rows
    TOUCHED_COUNT,
    JOINED_LEAVES,  # 1 if the rows of each path's leaves were ORed, so that no leaf has a row of its own; else 0
) = range(EVENT_TABLE_COUNT := 27)


class EventTables:
    """The state of `judge` for the current event, allocated once and used for every event."""

    def __init__(self, tables: t.Tables, rules: int) -> None:
        paths, columns = tables.number(t.PATHS), tables.number(t.COLUMNS)
        capacity = tables.number(t.CLASS_CAPACITY)
        self._addresses = np.zeros(EVENT_TABLE_COUNT, np.int64)
        self._arrays: dict[int, npt.NDArray[Any]] = {}
        self.address = address_of(self._addresses)
        self._text_room = -1
        self.plain = self.folded = 0
        self._put(PATH_FIRST_LEAF, np.full(paths + 1, -1, np.int32))
        self._put(PATH_CURRENT, tables.array(t.PATH_ABSENT).copy())
        self._put(PATH_CHAIN, np.full(paths + 1, -1, np.int32))
        self._put(PATH_NESTED, np.zeros(paths + 1, np.int64))
        self._put(ROW_STAMP, np.zeros(capacity, np.int64))
        self._put(RULE_YES, np.zeros(rules + 1, np.int64))
        self._put(RULE_NO, np.zeros(rules + 1, np.int64))
        self._put(RULE_BACK, np.zeros(rules + 1, np.int64))
        self._put(TOUCHED_RULES, np.zeros(rules + 1, np.int32))
        self._put(COLUMN_ADDRESS, np.zeros(columns + 1, np.int64))
        self._put(COLUMN_PATH, tables.array(t.COLUMN_PATH).copy())
        self._put(COLUMN_OFFSET, tables.array(t.COLUMN_OFFSET).copy())
        self._put(CANDIDATES, np.zeros(tables.number(t.STRIDE) + VECTOR_WORDS, np.uint64))
        self._put(SINGLE_ADDRESS, np.zeros(columns + 1, np.int64))
        self._put(CHAINED_COLUMNS, np.zeros(columns + 1, np.int32))
        self._put(LEFT, np.zeros(VECTOR_WORDS, np.uint64))
        self._put(JOINED, np.zeros(VECTOR_WORDS, np.uint64))
        self._put(PRESENT_PATHS, np.zeros(paths + 1, np.int32))

    def make_room(self, leaves: Leaves, longest_event: int) -> None:
        """Allocate room for these leaves and for the text of the longest event."""
        if self._arrays.get(LEAF_ARRAY) is not leaves.array:
            room = len(leaves.node)
            paths = len(self._arrays[PATH_CHAIN])
            self._put(LEAF_ROW, np.empty(room, np.int32))
            self._put(LEAF_NEXT, np.empty(room, np.int32))
            self._put(CHAIN_ROW, np.empty(room + paths, np.int32))
            self._put(CHAIN_NEXT, np.empty(room + paths, np.int32))
            self._put(LEAF_ARRAY, leaves.array)
            self._put(LEAF_ELEMENT, leaves.element)
        if longest_event > self._text_room:
            self._make_text_room(2 * longest_event + 4096)

    def give_back(self, kept: int) -> None:
        """Release the buffers for the text of an event if they exceed `kept` bytes."""
        if self._text_room > kept:
            self._make_text_room(0)

    def _make_text_room(self, size: int) -> None:
        self._text_room = size
        self._put(ELEMENT_COUNT, np.zeros(self._text_room, np.int32))
        self._plain = np.empty(self._text_room + 64, np.uint8)
        self._folded = np.empty(3 * self._text_room + 64, np.uint8)
        self.plain, self.folded = address_of(self._plain), address_of(self._folded)

    def _put(self, name: int, array: npt.NDArray[Any]) -> None:
        self._arrays[name] = array
        self._addresses[name] = address_of(array)


BLOCK_EVENTS: Final = 1024
"""The maximum number of events in a block: its leaves and text must fit into the processor's cache."""

BLOCK_BYTES: Final = 2 << 20
"""The maximum bytes of text in a block of several events; it also bounds the memory for the leaves of a block."""

_LEAVES_PER_EVENT: Final = 16
_RULES_PER_EVENT: Final = 64
"""The initial room for leaves and for matches, per event of a block; if a block needs more, the buffers grow."""

KEPT: Final = 8
"""Between calls, buffers of up to this many times their initial size are kept; larger ones are released."""


class BlockBuffers:
    """The buffers for the results of one block.

    `leaves` are the leaves of its events, `rules` are the numbers of the rules that match, and `handed` are the pairs
    of event and rule that are handed back. `text` has copies of texts at the end of readable memory.
    """

    def __init__(self, rules: int, max_matches: int) -> None:
        """Allocate the buffers for `rules` rules; before each event, `judge` needs room for `max_matches` matches."""
        self._count = rules
        self._max_matches = max_matches
        self._make()

    def _make(self) -> None:
        self.leaves = room_for_leaves(_LEAVES_PER_EVENT * BLOCK_EVENTS)
        self.rules = np.empty(self._least_matches, np.int32)
        self.handed = np.empty((BLOCK_EVENTS, 2), np.int64)
        self.text = TextBuffer()

    @property
    def _least_matches(self) -> int:
        return _RULES_PER_EVENT * BLOCK_EVENTS + self._max_matches

    def grow_leaves(self) -> None:
        """Double the room for leaves; existing leaves are kept."""
        self.leaves = Leaves(*[np.concatenate([array, np.empty_like(array)]) for array in self.leaves])

    def grow(self, matches: int, handed: int) -> None:
        """Make room for the maximum of one event after the existing `matches` matches and `handed` pairs."""
        if len(self.rules) - matches < 2 * self._max_matches:
            self.rules = np.concatenate([self.rules, np.empty(self._least_matches + matches, np.int32)])
        if len(self.handed) - handed <= self._count:
            self.handed = np.concatenate([self.handed, np.empty((self._count + 1 + handed, 2), np.int64)])

    def give_back(self) -> None:
        """Release the buffers after an unusually large block, so that they do not stay large."""
        if (
            len(self.leaves.node) > KEPT * _LEAVES_PER_EVENT * BLOCK_EVENTS
            or len(self.rules) > KEPT * self._least_matches
            or len(self.handed) > KEPT * max(BLOCK_EVENTS, self._count)
            or self.text.size > KEPT * BLOCK_BYTES
        ):
            self._make()
