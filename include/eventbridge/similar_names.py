"""Suggests existing names for an unknown name, in bounded time, because names may be many and hostile."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Sequence
from typing import Final

#: The maximum length of a name that is compared: the maximum for names of rules, buses and targets. Comparing two takes
#: up to
#: 1 ms.
_LONGEST: Final = 100
#: If there are more names, only those with the most similar beginnings and ends are compared.
_MAX_COMPARED: Final = 100
#: The maximum number of suggestions in one list of errors. Comparing 10,000 unknown names with 10,000 would take
#: minutes.
MAX_SUGGESTED: Final = 20
_MAX_NAMES = 20


def similar(word: str, names: Iterable[str], *, limit: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names most similar to a word, best first; `cutoff` is the minimum similarity, from 0 to 1.

    It takes 1 µs per name plus at most 0.1 s.
    """
    if len(word) > _LONGEST:
        return []
    known = [name for name in names if len(name) <= _LONGEST]
    if len(known) > _MAX_COMPARED:
        known = heapq.nlargest(_MAX_COMPARED, known, key=lambda name: _shared(word, name))
    return difflib.get_close_matches(word, known, n=limit, cutoff=cutoff)


def nearest(name: str, names: Iterable[str], reported: int = 0) -> str:
    """Return `Did you mean x?` for the nearest of `names`; "" if none is near, or MAX_SUGGESTED are `reported`."""
    by_folded = {known.lower(): known for known in names} if reported < MAX_SUGGESTED else {}
    near = similar(name.lower(), by_folded)
    return f"Did you mean {by_folded[near[0]]}?" if near else ""


def suggest(heading: str, name: str, known: Iterable[str]) -> str:
    """Return `Did you mean x?` for the nearest known name, else the first 20 names after `heading`."""
    names = sorted(set(known))
    return nearest(name, names) or f"{heading}: {list_names(names)}"


def list_names(names: Sequence[str]) -> str:
    """Return names on one line: the first 20 and the number of the others, or `none` if there are no names."""
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES]) or 'none'}{more}"


def _shared(one: str, other: str) -> int:
    """Return the number of characters that two words share at their beginning and end."""
    shortest = min(len(one), len(other))
    begin = 0
    while begin < shortest and one[begin] == other[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and one[-1 - end] == other[-1 - end]:
        end += 1
    return begin + end
