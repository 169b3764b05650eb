"""Compiles each pattern once, and evaluates compiled patterns with or without array consistency."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from eventbridge.event.json_document import Number
from eventbridge.matching.consistency import Demand, Leaf, every, lack, some, want
from eventbridge.matching.pattern import nodes
from eventbridge.matching.pattern.address import parse_address, parse_block
from eventbridge.matching.pattern.expression import compile_expression
from eventbridge.processes import check_cancelled

#: The number of tests of one value between two checks for cancellation.
_TESTS_PER_CHECK: Final = 16

ByPath: TypeAlias = dict[nodes.Path, list[Leaf]]


@dataclass(frozen=True, slots=True)
class CompiledField:
    """A leaf list, met if a leaf at `path` passes one of the tests, or no leaf exists and `can_be_absent` is true."""

    path: nodes.Path
    tests: tuple[Accept, ...]
    can_be_absent: bool

    def holds(self, by_path: ByPath) -> bool:
        """Return whether any leaf at the path meets the field or, if there is none, whether the field allows that."""
        found = by_path.get(self.path)
        if found is None:
            return self.can_be_absent
        if len(found) * len(self.tests) > _TESTS_PER_CHECK:
            return any(self._accepts(leaf) for leaf in found)
        for leaf in found:
            for test in self.tests:
                if test(leaf.value):
                    return True
        return False

    def demand(self, by_path: ByPath) -> Demand:
        """Return the demand of the field: one accepted leaf is chosen or, if allowed, all its leaves are excluded."""
        found = by_path.get(self.path, ())
        positions = frozenset(leaf.position for leaf in found if self._accepts(leaf))
        if not self.can_be_absent:
            return want(positions)
        return some((want(positions), lack(frozenset(leaf.position for leaf in found))))

    def _accepts(self, leaf: Leaf) -> bool:
        # Thousands of conditions may be tested on an array of a hundred thousand scalars, or on one long string.
        for number, test in enumerate(self.tests):
            if not number % _TESTS_PER_CHECK:
                check_cancelled()
            if test(leaf.value):
                return True
        return False


@dataclass(frozen=True, slots=True)
class CompiledAnd:
    """An AND, which is met if every part is met with leaves that are consistent with each other."""

    parts: tuple[CompiledField | CompiledOr, ...]

    def holds(self, by_path: ByPath) -> bool:
        """Return whether every part is met if array consistency is ignored."""
        for part in self.parts:  # noqa: SIM110 - a generator would cost as much as the test of a part
            if not part.holds(by_path):
                return False
        return True

    def demand(self, by_path: ByPath) -> Demand:
        """Return the demand of all parts together."""
        return every(part.demand(by_path) for part in self.parts)


@dataclass(frozen=True, slots=True)
class CompiledOr:
    """A `$or`, which is met if at least one alternative is met."""

    alternatives: tuple[CompiledAnd, ...]

    def holds(self, by_path: ByPath) -> bool:
        """Return whether an alternative is met if array consistency is ignored."""
        return any(alternative.holds(by_path) for alternative in self.alternatives)

    def demand(self, by_path: ByPath) -> Demand:
        """Return the demand of the alternatives."""
        return some(alternative.demand(by_path) for alternative in self.alternatives)


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """The sub-pattern that must match, and the one inside `$not`, which must not."""

    where: CompiledAnd
    unless: CompiledAnd | None


_compiled_patterns: WeakKeyDictionary[nodes.Pattern, CompiledPattern] = WeakKeyDictionary()


def compile_pattern(pattern: nodes.Pattern) -> CompiledPattern:
    """Return the compiled form of a pattern, which is cached for as long as the pattern exists."""
    compiled = _compiled_patterns.get(pattern)
    if compiled is None:
        unless = None if pattern.unless is None else compile_and(pattern.unless.pattern)
        compiled = _compiled_patterns[pattern] = CompiledPattern(compile_and(pattern.where), unless)
    return compiled


def compile_and(where: nodes.And) -> CompiledAnd:
    """Return the compiled form of a sub-pattern."""
    return CompiledAnd(tuple(compile_clause(clause) for clause in where.clauses))


def compile_clause(clause: nodes.Clause) -> CompiledField | CompiledOr:
    """Return the compiled form of a leaf list or a `$or`."""
    if isinstance(clause, nodes.Field):
        conditions = [condition for condition in clause.conditions if condition != nodes.Exists(False)]
        return CompiledField(clause.path, tuple(map(acceptance, conditions)), clause.can_be_absent)
    return CompiledOr(tuple(compile_and(alternative) for alternative in clause.alternatives))


Accept: TypeAlias = Callable[[Any], bool]
"""A test of one scalar, whose type is `Scalar`."""

_COMPARE: Final[dict[nodes.Comparison, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def acceptance(condition: nodes.Condition) -> Accept:
    """Return the test that a leaf must pass to meet `condition`; `Exists(False)` accepts no leaf."""
    match condition:
        case nodes.Exactly(value):
            return _exact_test(value)
        case nodes.Numeric(bounds):
            return _numeric_test(bounds)
        case nodes.Exists(there):
            return lambda leaf: there
        case nodes.Cidr(block):
            return _cidr_test(block)
        case nodes.AnythingBut(none_of):
            excluded = [acceptance(inner) for inner in none_of]
            return lambda leaf: not any(accept(leaf) for accept in excluded)
        case nodes.All(conditions):
            required = [acceptance(inner) for inner in conditions]
            return lambda leaf: all(accept(leaf) for accept in required)
        case _:
            return _text_acceptance(condition)


def _text_acceptance(
    condition: nodes.Prefix | nodes.Suffix | nodes.EqualsIgnoreCase | nodes.Wildcard | nodes.Contains | nodes.Regex,
) -> Accept:
    match condition:
        case nodes.Prefix(text, ignore_case):
            return _prefix_test(text.casefold(), str.casefold) if ignore_case else _prefix_test(text, str)
        case nodes.Suffix(text, ignore_case):
            return _suffix_test(text.casefold(), str.casefold) if ignore_case else _suffix_test(text, str)
        case nodes.EqualsIgnoreCase(text):
            folded = text.casefold()
            return lambda leaf: isinstance(leaf, str) and leaf.casefold() == folded
        case nodes.Wildcard():
            return _wildcard_test(condition.parts)
        case nodes.Contains(text):
            return lambda leaf: isinstance(leaf, str) and text in leaf
        case nodes.Regex(expression):
            fullmatch = compile_expression(expression)
            return lambda leaf: isinstance(leaf, str) and fullmatch(leaf)


def _exact_test(value: nodes.Scalar) -> Accept:
    if value is None or isinstance(value, bool):
        return lambda leaf: leaf is value
    kind = str if isinstance(value, str) else Number
    return lambda leaf: isinstance(leaf, kind) and leaf == value


def _prefix_test(text: str, fold: Callable[[str], str]) -> Accept:
    return lambda leaf: isinstance(leaf, str) and fold(leaf).startswith(text)


def _suffix_test(text: str, fold: Callable[[str], str]) -> Accept:
    return lambda leaf: isinstance(leaf, str) and fold(leaf).endswith(text)


def _numeric_test(bounds: tuple[tuple[nodes.Comparison, Number], ...]) -> Accept:
    tests = [(_COMPARE[comparison], number) for comparison, number in bounds]
    return lambda leaf: isinstance(leaf, Number) and all(compare(leaf, number) for compare, number in tests)


def _cidr_test(text: str) -> Accept:
    block = parse_block(text)
    assert block is not None, "the parser has checked it"

    def accept(leaf: nodes.Scalar) -> bool:
        address = parse_address(leaf) if isinstance(leaf, str) else None
        return address is not None and block.holds(address)

    return accept


def _wildcard_test(parts: tuple[str, ...]) -> Accept:
    """Return the test of a wildcard: after a fixed start, take the first occurrence of each part, then check the end.

    The first occurrence leaves the most text for the parts that follow.
    """
    first, middle, last = parts[0], parts[1:-1], parts[-1]
    if len(parts) == 1:
        return lambda leaf: isinstance(leaf, str) and leaf == first

    def accept(leaf: nodes.Scalar) -> bool:
        if not isinstance(leaf, str) or not leaf.startswith(first):
            return False
        position = len(first)
        for part in middle:
            position = leaf.find(part, position)
            if position < 0:
                return False
            position += len(part)
        return leaf.endswith(last) and len(leaf) - len(last) >= position

    return accept
