"""A pattern whose conditions are compiled once, evaluated in two ways: without and with array consistency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

from eventbridge.cancelling import check_cancelled
from eventbridge.matching.accept import Accept, acceptance
from eventbridge.matching.consistency import Demand, every, lack, some, want
from eventbridge.matching.leaves import Leaf
from eventbridge.matching.pattern.nodes import And, Clause, Exists, Field, Path, Pattern

ByPath: TypeAlias = dict[Path, list[Leaf]]


@dataclass(frozen=True, slots=True)
class CompiledField:
    """A leaf list: the leaf at `path` passes one of the tests, or there is none and that is allowed."""

    path: Path
    tests: tuple[Accept, ...]
    can_be_absent: bool

    def holds(self, by_path: ByPath) -> bool:
        """Return whether the field is met by any leaf, wherever in arrays it lies, or by there being none."""
        found = by_path.get(self.path)
        if found is None:
            return self.can_be_absent
        for leaf in found:
            for test in self.tests:
                if test(leaf.value):
                    return True
        return False

    def demand(self, by_path: ByPath) -> Demand:
        """Return which leaves may be chosen, or must not be left over, for the field to be met."""
        found = by_path.get(self.path, ())
        places = frozenset(leaf.place for leaf in found if self._accepts(leaf))
        if not self.can_be_absent:
            return want(places)
        return some((want(places), lack(frozenset(leaf.place for leaf in found))))

    def _accepts(self, leaf: Leaf) -> bool:
        check_cancelled()  # a pattern of a thousand fields may meet an event with an array of a hundred thousand
        return any(test(leaf.value) for test in self.tests)


@dataclass(frozen=True, slots=True)
class CompiledAnd:
    """Every part is met, with leaves consistent with one another."""

    parts: tuple[CompiledField | CompiledOr, ...]

    def holds(self, by_path: ByPath) -> bool:
        """Return whether every part is met, whatever the arrays."""
        for part in self.parts:  # noqa: SIM110 - a generator would cost as much as a part
            if not part.holds(by_path):
                return False
        return True

    def demand(self, by_path: ByPath) -> Demand:
        """Return what every part demands."""
        return every(part.demand(by_path) for part in self.parts)


@dataclass(frozen=True, slots=True)
class CompiledOr:
    """At least one alternative is met."""

    alternatives: tuple[CompiledAnd, ...]

    def holds(self, by_path: ByPath) -> bool:
        """Return whether an alternative is met, whatever the arrays."""
        return any(alternative.holds(by_path) for alternative in self.alternatives)

    def demand(self, by_path: ByPath) -> Demand:
        """Return what the alternatives demand."""
        return some(alternative.demand(by_path) for alternative in self.alternatives)


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """What must be met, and what must not."""

    where: CompiledAnd
    unless: CompiledAnd | None


_known: WeakKeyDictionary[Pattern, CompiledPattern] = WeakKeyDictionary()


def compile_pattern(pattern: Pattern) -> CompiledPattern:
    """Return the compiled form, made once for as long as the pattern lives."""
    compiled = _known.get(pattern)
    if compiled is None:
        unless = None if pattern.unless is None else compile_and(pattern.unless.pattern)
        compiled = _known[pattern] = CompiledPattern(compile_and(pattern.where), unless)
    return compiled


def compile_and(where: And) -> CompiledAnd:
    """Return the compiled form of a sub-pattern."""
    return CompiledAnd(tuple(compile_clause(clause) for clause in where.clauses))


def compile_clause(clause: Clause) -> CompiledField | CompiledOr:
    """Return the compiled form of a leaf list or a `$or`."""
    if isinstance(clause, Field):
        conditions = [condition for condition in clause.conditions if condition != Exists(False)]
        return CompiledField(clause.path, tuple(map(acceptance, conditions)), clause.can_be_absent)
    return CompiledOr(tuple(compile_and(alternative) for alternative in clause.alternatives))
