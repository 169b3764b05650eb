"""Regular expressions in SQL: Java evaluates them by trial and error, so a pattern that may take long is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eventbridge.transform.sql.pattern_cost import LEAST_TEXT, Piece, longest_text, looks_around

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
    looks_around: bool = False


@dataclass
class _Pattern:
    pieces: list[Piece]
    ways: int = 1
    problem: str | None = None


def pattern_problem(pattern: str) -> str | None:
    """Return why a regular expression is refused; None if it is not.

    Refused are references to groups and `\\Q`, flags that change what a part is, sets inside sets, groups that capture
    inside a look-around (they may hold more than the match), a repeated group that has a repetition or a choice inside
    (the time may double with each character of the text), and what is too slow for a text of `LEAST_TEXT` characters.
    """
    read = _read(pattern)
    if read.problem is None and not longest_text(read.pieces, read.ways):
        return f"it may take more than a second for a text of {LEAST_TEXT} characters"
    return read.problem


def pattern_limit(pattern: str) -> int:
    """Return how many characters a text may have that an allowed pattern is applied to."""
    read = _read(pattern)
    return longest_text(read.pieces, read.ways)


def _read(pattern: str) -> _Pattern:
    read = _Pattern([])
    read.problem = _problem(pattern, read)
    return read


def _problem(pattern: str, read: _Pattern) -> str | None:
    if len(pattern) > MAXIMUM_PATTERN:
        return f"it has {len(pattern):,} characters, and {MAXIMUM_PATTERN:,} are the most"
    groups, unbounded, last, at = [_Group()], 0, _Group(), 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        if found is None:
            return f"{pattern[at:][:10]!r} in it is not supported"
        kind, piece = str(found.lastgroup), found[0]
        at = found.end()
        read.pieces.append(Piece(kind, piece))
        if kind == "escape" and (piece[1].isdigit() or piece[1] in "QEckGXRN"):
            return f"{piece} in it is not supported"
        if kind == "repeat":
            if piece[0] != "?" and (last.repeats or last.optional or last.branches > 1):
                return f"{piece} repeats a group that has a repetition or a choice inside"
            if piece[0] == "?":
                groups[-1].optional = True
            else:
                groups[-1].repeats = True
                unbounded += read.pieces[-1].has_no_end
            read.ways *= _ways(piece)
        elif kind == "open" and not piece.endswith(")"):
            if groups[-1].looks_around and (piece == "(" or (piece[2:3] == "<" and piece[3] not in "=!")):
                return f"{piece} captures inside a look-around; write (?: there"
            groups.append(_Group(looks_around=groups[-1].looks_around or looks_around(read.pieces[-1])))
        elif kind == "either":
            groups[-1].branches += 1
        last = _Group()
        if kind == "close":
            if len(groups) == 1:
                return "it closes a group that is not open"
            last = groups.pop()
            read.ways *= last.branches
            groups[-1].repeats |= last.repeats
            groups[-1].optional |= last.optional or last.branches > 1
    if len(groups) > 1:
        return "it does not close a group"
    if unbounded > MAXIMUM_UNBOUNDED:
        return f"it repeats {unbounded} parts without an upper bound, and {MAXIMUM_UNBOUNDED} are the most"
    read.ways *= groups[0].branches
    if read.ways > MAXIMUM_WAYS:
        return f"its ?, {{m,n}} and | can be combined in {read.ways:,} ways, and {MAXIMUM_WAYS:,} are the most"
    return None


def _ways(repeat: str) -> int:
    """Return how many lengths a repetition with an upper bound can have; 1 for any other."""
    if repeat[0] == "?":
        return 2
    bounds = re.match(r"\{([0-9]+),([0-9]+)\}", repeat)
    return max(1, int(bounds[2]) - int(bounds[1]) + 1) if bounds else 1
