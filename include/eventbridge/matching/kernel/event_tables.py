"""The state of the current event: its leaves by path, their classes, and the results of rules so far."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eventbridge.matching.kernel import tables as t
from eventbridge.matching.scan.leaves import Leaves
from eventbridge.matching.scan.memory import address_of
from eventbridge.matching.scan.words import AT_ONCE

# Places in the list of addresses that EventTables keeps; the last two are plain numbers.
(
    LEAF_ROW,  # per leaf: the row of its class
    LEAF_NEXT,  # per leaf: the next leaf at the same path, -1
    LEAF_ARRAY,
    LEAF_ELEMENT,
    PATH_FIRST_LEAF,  # per path: the first leaf, -1
    PATH_CURRENT,  # per path: the row of the class of the first leaf, or of having none
    PATH_CHAIN,  # per path: the first further class, -1
    PATH_NESTED,  # per path: the stamp of the last event that had a leaf there in an element of an array
    CHAIN_ROW,
    CHAIN_NEXT,
    ROW_STAMP,  # per row: the stamp of the last event that noted it
    ELEMENT_COUNT,  # per element of the array at hand: how many fields it meets
    RULE_YES,  # per rule: the stamp of the last event with a positive branch that holds
    RULE_NO,
    RULE_BACK,
    TOUCHED_RULES,
    COLUMN_ADDRESS,  # per column that takes part in the AND: where its row begins
    COLUMN_PATH,
    COLUMN_OFFSET,
    CANDIDATES,  # a row: the branches whose anchor has a leaf that it admits, and those without an anchor
    PRESENT_PATHS,
    SINGLE_ADDRESS,  # per column whose path has one class: where its row begins
    CHAINED_COLUMNS,  # the columns whose path has several classes
    LEFT,  # the words at hand that the AND has left
    JOINED,  # those of the rows of a chain
    TOUCHED_COUNT,
    JOINED_LEAVES,  # 1 if the rows of each path's leaves were joined: which of them did what is not known; else 0
) = range(EVENT_TABLE_COUNT := 27)


class EventTables:
    """What `judge` knows of the event at hand, laid out once and used for every event."""

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
        self._put(CANDIDATES, np.zeros(tables.number(t.STRIDE) + AT_ONCE, np.uint64))
        self._put(SINGLE_ADDRESS, np.zeros(columns + 1, np.int64))
        self._put(CHAINED_COLUMNS, np.zeros(columns + 1, np.int32))
        self._put(LEFT, np.zeros(AT_ONCE, np.uint64))
        self._put(JOINED, np.zeros(AT_ONCE, np.uint64))
        self._put(PRESENT_PATHS, np.zeros(paths + 1, np.int32))

    def make_room(self, leaves: Leaves, longest_event: int) -> None:
        """See to it that there is room for these leaves and for the text of the longest event."""
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
        """Give back the room for the text of an event, if it is for more than `kept` bytes."""
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
