"""Room for what a block of events comes to: it grows as a block needs it, and what is too much is given back."""

from __future__ import annotations

from typing import Final

import numpy as np

from eventbridge.matching.scan.leaves import Leaves, room_for_leaves
from eventbridge.matching.scan.texts import TextBuffer

BLOCK_EVENTS: Final = 1024
"""Events scanned and judged at a time: their leaves and their text stay in the processor's cache."""

BLOCK_BYTES: Final = 2 << 20
"""Text of a block, but for an event that alone has more: what is noted of a block is bounded with it."""

_LEAVES_PER_EVENT: Final = 16
_RULES_PER_EVENT: Final = 64
"""Room to begin with; where a block needs more, room is doubled until it does."""

KEPT: Final = 8
"""Room so many times as large as to begin with stays from call to call; more is given back."""


class BlockBuffers:
    """Arrays that a block is scanned and judged into.

    `leaves`; `rules`, the numbers of rules that match; `handed`, pairs of event and rule that are handed back; `text`
    for texts behind which no memory may be read.
    """

    def __init__(self, rules: int, most_matches: int) -> None:
        """Make room for `rules` rules, of which `judge` wants room for `most_matches` before it begins an event."""
        self._count = rules
        self._most_matches = most_matches
        self._make()

    def _make(self) -> None:
        self.leaves = room_for_leaves(_LEAVES_PER_EVENT * BLOCK_EVENTS)
        self.rules = np.empty(self._least_matches, np.int32)
        self.handed = np.empty((BLOCK_EVENTS, 2), np.int64)
        self.text = TextBuffer()

    @property
    def _least_matches(self) -> int:
        return _RULES_PER_EVENT * BLOCK_EVENTS + self._most_matches

    def grow_leaves(self) -> None:
        """Make room for twice the leaves, and keep those that are there."""
        self.leaves = Leaves(*[np.concatenate([array, np.empty_like(array)]) for array in self.leaves])

    def grow(self, matches: int, handed: int) -> None:
        """Make room for what any event may come to, behind so many matches and pairs that are there."""
        if len(self.rules) - matches < 2 * self._most_matches:
            self.rules = np.concatenate([self.rules, np.empty(self._least_matches + matches, np.int32)])
        if len(self.handed) - handed <= self._count:
            self.handed = np.concatenate([self.handed, np.empty((self._count + 1 + handed, 2), np.int64)])

    def give_back(self) -> None:
        """Give back what a block out of the ordinary took, so that rooms do not add up from call to call."""
        if (
            len(self.leaves.node) > KEPT * _LEAVES_PER_EVENT * BLOCK_EVENTS
            or len(self.rules) > KEPT * self._least_matches
            or len(self.handed) > KEPT * max(BLOCK_EVENTS, self._count)
            or self.text.size > KEPT * BLOCK_BYTES
        ):
            self._make()
