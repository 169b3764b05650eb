"""A rule's pattern and an event, as the predicates look at them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from eventbridge.event.json_document import parse_document
from eventbridge.matching.compiled import Accept, acceptance
from eventbridge.matching.consistency import Leaf, Leaves, flatten
from eventbridge.matching.pattern.nodes import And, AnythingBut, Condition, Field, Path, Pattern

Conjunction = tuple[Field, ...]


@dataclass(frozen=True)
class Pair:
    """A rule's pattern and the text of an event."""

    pattern: Pattern
    text: str

    @cached_property
    def flat(self) -> Leaves:
        """The event's leaves."""
        return flatten(parse_document(self.text))

    @property
    def leaves(self) -> dict[Path, list[Leaf]]:
        """The event's leaves by path."""
        return self.flat.by_path

    def meetings(self, inside: bool = True) -> Iterator[tuple[Condition, Any]]:
        """Yield each condition with each leaf at its path; instead of anything-but, if `inside`, what is in it."""
        for path, conditions in conditions_by_path(self.pattern):
            for leaf in self.leaves.get(path, ()):
                for condition in conditions:
                    for each in (inside and excluded_by(condition)) or (condition,):
                        yield each, leaf.value


def excluded_by(condition: Condition) -> tuple[Condition, ...]:
    """Return what an anything-but excludes, of another condition nothing."""
    return condition.none_of if isinstance(condition, AnythingBut) else ()


@lru_cache(maxsize=4096)
def conjunctions(pattern: Pattern) -> tuple[Conjunction, ...]:
    """Return every choice of alternatives, each as its leaf lists in the order in which they are written."""
    return tuple(_conjunctions(pattern.where))


def _conjunctions(where: And) -> Iterator[Conjunction]:
    choices = [
        [(clause,)]
        if isinstance(clause, Field)
        else [one for each in clause.alternatives for one in _conjunctions(each)]
        for clause in where.clauses
    ]
    for choice in itertools.product(*choices):
        yield tuple(itertools.chain(*choice))


@lru_cache(maxsize=4096)
def conditions_by_path(pattern: Pattern) -> tuple[tuple[Path, tuple[Condition, ...]], ...]:
    """Return every leaf list of a pattern once."""
    fields = dict.fromkeys(field for conjunction in conjunctions(pattern) for field in conjunction)
    return tuple((field.path, field.conditions) for field in fields)


@lru_cache(maxsize=65536)
def accept(condition: Condition) -> Accept:
    """Return the test of a condition, made once."""
    return acceptance(condition)
