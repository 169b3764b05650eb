"""Regular expressions in SQL: Java evaluates them by trial and error, so those that may try for ever are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAXIMUM_PATTERN: Final = 1_000
#: How many parts without an upper bound a pattern may have: the time grows with the text's length to that power.
MAXIMUM_UNBOUNDED: Final = 4
#: In how many ways the parts with an upper bound may be tried together: `?`, `{1,3}` and `a|b` multiply.
MAXIMUM_WAYS: Final = 100_000

_PIECE: Final = re.compile(
    r"""(?P<escape>\\.)
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
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


def pattern_problem(pattern: str) -> str | None:
    """Return why a regular expression is refused; None if it is not.

    Refused are references to groups and `\\Q`, flags that change what a part is, and a repeated group that has a
    repetition or a choice inside: the time of such a pattern may double with each character of the text.
    """
    if len(pattern) > MAXIMUM_PATTERN:
        return f"it has {len(pattern):,} characters, and {MAXIMUM_PATTERN:,} are the most"
    groups, unbounded, ways, last, at = [_Group()], 0, 1, _Group(), 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        if found is None:
            return f"{pattern[at:][:10]!r} in it is not supported"
        kind, piece = str(found.lastgroup), found[0]
        at = found.end()
        if kind == "escape" and (piece[1].isdigit() or piece[1] in "QEckGXR"):
            return f"{piece} in it is not supported"
        if kind == "repeat":
            if last.repeats or last.branches > 1 or (last.optional and piece[0] != "?"):
                return f"{piece} repeats a group that has a repetition or a choice inside"
            if piece[0] == "?":
                groups[-1].optional = True
            else:
                groups[-1].repeats = True
                unbounded += piece[0] in "*+" or ",}" in piece
            ways *= _ways(piece)
        elif kind == "open" and not piece.endswith(")"):
            groups.append(_Group())
        elif kind == "either":
            groups[-1].branches += 1
        last = _Group()
        if kind == "close":
            if len(groups) == 1:
                return "it closes a group that is not open"
            last = groups.pop()
            ways *= last.branches
            groups[-1].repeats |= last.repeats
            groups[-1].optional |= last.optional or last.branches > 1
    if len(groups) > 1:
        return "it does not close a group"
    if unbounded > MAXIMUM_UNBOUNDED:
        return f"it repeats {unbounded} parts without an upper bound, and {MAXIMUM_UNBOUNDED} are the most"
    if ways > MAXIMUM_WAYS:
        return f"its ?, {{m,n}} and | can be combined in {ways:,} ways, and {MAXIMUM_WAYS:,} are the most"
    return None


def _ways(repeat: str) -> int:
    """Return how many lengths a repetition with an upper bound can have; 1 for any other."""
    if repeat[0] == "?":
        return 2
    bounds = re.match(r"\{([0-9]+),([0-9]+)\}", repeat)
    return max(1, int(bounds[2]) - int(bounds[1]) + 1) if bounds else 1
