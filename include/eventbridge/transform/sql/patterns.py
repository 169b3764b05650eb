"""Regular expressions in SQL: Java evaluates them by trial and error, so those that may try for ever are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAXIMUM_PATTERN: Final = 1_000
#: How many parts without an upper bound a pattern may have: the time grows with the text's length to that power.
MAXIMUM_UNBOUNDED: Final = 4

_PIECE: Final = re.compile(
    r"""(?P<escape>\\.)
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    |(?P<open>\((?:\?(?:[:=!>]|<[=!]|<\w+>|[imsu]+\)))?)
    |(?P<close>\))
    |(?P<either>\|)
    |(?P<repeat>(?:[*+?]|\{\d{1,4}(?:,\d{0,4})?\})[?+]?)
    |(?P<plain>[^\\\[\](){}|*+?]|[\]}])""",
    re.DOTALL | re.VERBOSE,
)


@dataclass
class _Group:
    repeats: bool = False
    branches: bool = False


def pattern_problem(pattern: str) -> str | None:
    """Return why a regular expression is refused; None if it is not.

    Refused are references to groups and `\\Q`, and a repeated group that has a repetition or a choice inside: the
    time of such a pattern may double with each character of the text.
    """
    if len(pattern) > MAXIMUM_PATTERN:
        return f"it has {len(pattern):,} characters, and {MAXIMUM_PATTERN:,} are the most"
    groups, unbounded, last, at = [_Group()], 0, _Group(), 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        if found is None:
            return f"{pattern[at:][:10]!r} in it is not supported"
        kind, piece = str(found.lastgroup), found[0]
        at = found.end()
        if kind == "escape" and (piece[1].isdigit() or piece[1] in "QEkGXR"):
            return f"{piece} in it is not supported"
        if kind == "repeat":
            if last.repeats or last.branches:
                return f"{piece} repeats a group that has a repetition or a choice inside"
            if piece[0] != "?":
                groups[-1].repeats = True
                unbounded += piece[0] in "*+" or ",}" in piece
        elif kind == "open" and not piece.endswith(")"):
            groups.append(_Group())
        elif kind == "either":
            groups[-1].branches = True
        last = _Group()
        if kind == "close":
            if len(groups) == 1:
                return "it closes a group that is not open"
            last = groups.pop()
            groups[-1].repeats |= last.repeats
            groups[-1].branches |= last.branches
    if len(groups) > 1:
        return "it does not close a group"
    if unbounded > MAXIMUM_UNBOUNDED:
        return f"it repeats {unbounded} parts without an upper bound, and {MAXIMUM_UNBOUNDED} are the most"
    return None
