"""Regular expressions in SQL: Java evaluates them by trial and error, so a pattern that may take long is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eventbridge.transform.sql.pattern_cost import LEAST_TEXT, Piece, is_lookaround, longest_text

MAXIMUM_PATTERN: Final = 1_000
#: How many parts without an upper bound a pattern may have, so that the check of a pattern is quick.
MAXIMUM_UNBOUNDED: Final = 20
#: In how many ways the parts with an upper bound may be tried together: `?`, `{1,3}` and `a|b` multiply.
MAXIMUM_WAYS: Final = 100_000

_PIECE: Final = re.compile(
    r"""(?P<escape>\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[pP][A-Z]|\\[^xupP])
    |(?P<set>\[\^?\]?(?:\\[^cQE]|(?!&&)[^\[\]\\])*\])
    |(?P<open>\((?:\?(?:[:=!>]|<[=!]|<\w+>|[imsu]+\))|(?!\?)))
    |(?P<close>\))
    |(?P<either>\|)
    |(?P<repeat>(?:[*+?]|\{[0-9]{1,4}(?:,[0-9]{0,4})?\})[?+]?)
    |(?P<plain>[^\\\[\](){}|*+?]|[\]}])""",
    re.DOTALL | re.VERBOSE,
)


@dataclass
class _Group:
    repeats: bool = False
    optional: bool = False
    branches: int = 1
    is_lookaround: bool = False


class _Pattern:
    """The pieces of a pattern, the groups that are open behind the last one, and what is known of both."""

    def __init__(self, pattern: str) -> None:
        self.pieces: list[Piece] = []
        self.ways = 1
        self._groups = [_Group()]
        self._unbounded = 0
        self._closed = _Group()  # the group that the last piece closed, if it did
        self.problem = self._read(pattern)

    def _read(self, pattern: str) -> str | None:
        """Take every piece; returns the first problem."""
        if len(pattern) > MAXIMUM_PATTERN:
            return f"it has {len(pattern):,} characters, and {MAXIMUM_PATTERN:,} are the most"
        at = 0
        while at < len(pattern):
            found = _PIECE.match(pattern, at)
            if found is None:
                return f"{pattern[at:][:10]!r} in it is not supported"
            at = found.end()
            self.pieces.append(Piece(str(found.lastgroup), found[0]))
            if problem := self._take(self.pieces[-1]):
                return problem
        return self._problem_of_all()

    def _take(self, piece: Piece) -> str | None:
        if piece.kind == "escape" and (piece.text[1].isdigit() or piece.text[1] in "QEckGXRN"):
            return f"{piece.text} in it is not supported"
        if piece.kind == "close":
            return self._close()
        problem = None
        if piece.kind == "repeat":
            problem = self._repeat(piece)
        elif piece.kind == "open" and not piece.text.endswith(")"):
            problem = self._open(piece)
        elif piece.kind == "either":
            self._groups[-1].branches += 1
        self._closed = _Group()
        return problem

    def _repeat(self, piece: Piece) -> str | None:
        closed = self._closed
        if piece.text[0] == "?":
            self._groups[-1].optional = True
        elif closed.repeats or closed.optional or closed.branches > 1:
            return f"{piece.text} repeats a group that has a repetition or a choice inside"
        else:
            self._groups[-1].repeats = True
            self._unbounded += piece.has_no_end
        self.ways *= _ways(piece.text)
        return None

    def _open(self, piece: Piece) -> str | None:
        around = self._groups[-1].is_lookaround
        if around and (piece.text == "(" or (piece.text[2:3] == "<" and piece.text[3] not in "=!")):
            return f"{piece.text} captures inside a look-around; write (?: there"
        self._groups.append(_Group(is_lookaround=around or is_lookaround(piece)))
        return None

    def _close(self) -> str | None:
        if len(self._groups) == 1:
            return "it closes a group that is not open"
        self._closed = closed = self._groups.pop()
        self.ways *= closed.branches
        self._groups[-1].repeats |= closed.repeats
        self._groups[-1].optional |= closed.optional or closed.branches > 1
        return None

    def _problem_of_all(self) -> str | None:
        if len(self._groups) > 1:
            return "it does not close a group"
        if self._unbounded > MAXIMUM_UNBOUNDED:
            return f"it repeats {self._unbounded} parts without an upper bound, and {MAXIMUM_UNBOUNDED} are the most"
        self.ways *= self._groups[0].branches
        if self.ways > MAXIMUM_WAYS:
            return f"its ?, {{m,n}} and | can be combined in {self.ways:,} ways, and {MAXIMUM_WAYS:,} are the most"
        return None


def pattern_problem(pattern: str) -> str | None:
    """Return why a regular expression is refused; None if it is not.

    Refused are references to groups and `\\Q`, flags that change what a part is, sets inside sets, groups that capture
    inside a look-around (they may hold more than the match), a repeated group that has a repetition or a choice inside
    (the time may double with each character of the text), and what is too slow for a text of `LEAST_TEXT` characters.
    """
    read = _Pattern(pattern)
    if read.problem is None and not longest_text(read.pieces, read.ways):
        return f"it may take more than a second for a text of {LEAST_TEXT} characters"
    return read.problem


def pattern_limit(pattern: str) -> int:
    """Return how many characters a text may have that an allowed pattern is applied to."""
    read = _Pattern(pattern)
    return longest_text(read.pieces, read.ways)


def _ways(repeat: str) -> int:
    """Return how many lengths a repetition with an upper bound can have; 1 for any other."""
    if repeat[0] == "?":
        return 2
    bounds = re.match(r"\{([0-9]+),([0-9]+)\}", repeat)
    return max(1, int(bounds[2]) - int(bounds[1]) + 1) if bounds else 1
