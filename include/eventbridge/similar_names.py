"""Suggests existing names for an unknown name, in bounded time: names may be hostile and many."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable
from typing import Final

#: Names of rules, buses and targets have at most so many characters. A comparison of two takes up to 1 ms.
_LONGEST: Final = 100
#: If there are more names, only those with the most similar beginnings and ends are compared.
_MOST_COMPARED: Final = 100
#: The most suggestions in one list of errors: comparing 10,000 unknown names with 10,000 takes minutes.
MOST_SUGGESTED: Final = 20


def similar(word: str, names: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names most similar to a word, best first; `cutoff` is the least similarity, from 0 to 1.

    It takes 1 µs for each name, and at most 0.1 s more.
    """
    if len(word) > _LONGEST:
        return []
    known = [name for name in names if len(name) <= _LONGEST]
    if len(known) > _MOST_COMPARED:
        known = heapq.nlargest(_MOST_COMPARED, known, key=lambda name: _shared(word, name))
    return difflib.get_close_matches(word, known, n=most, cutoff=cutoff)


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
