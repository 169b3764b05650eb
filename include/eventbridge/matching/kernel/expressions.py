"""Matches regular expressions with RE2: a few sets per path, and a cache of results by string."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import re2

from eventbridge.matching.scan.memory import PADDING, address_of
from eventbridge.matching.scan.strings import unescape

SET_SIZE: Final = 64
"""The maximum number of expressions in one RE2 set."""

REMEMBERED: Final = 10_000
"""The maximum number of strings per path whose results are cached; a full cache is cleared."""

_MAX_CACHED_BYTES: Final = 1_000
# A set that runs out of memory returns no match and only logs that. RE2's automaton drops its states and continues as
# long as the limit has room for a few of them, so the limit is far above the need of 64 expressions of maximum length.
_SET_MEMORY: Final = 256 << 20
_MAX_CHARACTERS_IN_SET: Final = 1_000


class ExpressionSets:
    """Decides which of a path's expressions match a string as a whole."""

    def __init__(self, expressions: Sequence[tuple[str, int]]) -> None:
        """Compile the expressions, given as pairs (RE2 expression, atom)."""
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _SET_MEMORY
        self._sets: list[tuple[re2.Set, list[int]]] = []
        self._single_expressions: list[tuple[object, int]] = []
        self._cache: dict[tuple[bytes, bool], list[int]] = {}
        self._options = options
        listed = [pair for pair in expressions if len(pair[0]) <= _MAX_CHARACTERS_IN_SET]
        for first in range(0, len(listed), SET_SIZE):
            self._add(listed[first : first + SET_SIZE])
        self._add_singly(pair for pair in expressions if len(pair[0]) > _MAX_CHARACTERS_IN_SET)

    def _add(self, expressions: Sequence[tuple[str, int]]) -> None:
        """Add expressions as one set, or as several if RE2 rejects them as too large together."""
        if len(expressions) == 1:
            self._add_singly(expressions)
            return
        one = re2.Set.FullMatchSet(self._options)
        try:
            for expression, _ in expressions:
                one.Add(_utf8(expression))
            one.Compile()
        except re2.error:
            half = len(expressions) // 2
            self._add(expressions[:half])
            self._add(expressions[half:])
            return
        self._sets.append((one, [atom for _, atom in expressions]))

    def _add_singly(self, expressions: Iterable[tuple[str, int]]) -> None:
        for expression, atom in expressions:
            self._single_expressions.append((re2.compile(_utf8(expression), self._options), atom))

    def met_by(self, content: bytes, *, escaped: bool) -> list[int]:
        """Return, in ascending order, the atoms of the expressions that match the content of a JSON string."""
        key = (content, escaped)
        known = self._cache.get(key)
        if known is None:
            known = self._look_up(_plain(content) if escaped else content)
            if len(content) <= _MAX_CACHED_BYTES:
                if len(self._cache) >= REMEMBERED:
                    self._cache.clear()
                self._cache[key] = known
        return known

    def _look_up(self, text: bytes) -> list[int]:
        met = [atoms[index] for one, atoms in self._sets for index in one.Match(text) or ()]
        met += [atom for expression, atom in self._single_expressions if expression.fullmatch(text) is not None]  # type: ignore[attr-defined]
        return sorted(met)


def _plain(content: bytes) -> bytes:
    text = np.frombuffer(content + bytes(PADDING), np.uint8)
    room = np.empty(len(content) + PADDING, np.uint8)
    return room[: unescape(address_of(text), 0, len(content), address_of(room))].tobytes()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
