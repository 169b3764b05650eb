"""Candidates of backtests, and the pairs of rules that are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventbridge.rules import RuleSet


@dataclass(frozen=True)
class Candidate:
    """Rules of one bus that are backtested, under a name that the user gave; all of them are enabled."""

    name: str
    bus: str
    rules: RuleSet


def pairs_of(a: Iterable[str], b: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of rules of A and B to compare: those with the same name; if each has one rule, these two."""
    ours, theirs = sorted(a), sorted(b)
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    return [(name, name) for name in ours if name in theirs]


def apart_of(a: RuleSet, b: RuleSet, pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rules of A and of B that are routed separately: budgeted ones, and those compared with one."""
    ours, theirs = ({rule.name for rule in rules.rules.values() if rule.is_budgeted} for rules in (a, b))
    for one, other in pairs:
        if one in ours or other in theirs:
            ours.add(one)
            theirs.add(other)
    return tuple(sorted(ours)), tuple(sorted(theirs))
