"""Matches patterns against events as docs/reference/patterns.md specifies, and explains why a pattern does not match.

This is the reference matcher, so its results are correct by definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from eventbridge.event.json_document import Document, as_document, parse_document, write_document
from eventbridge.event.json_text import write_head
from eventbridge.matching.compiled import CompiledAnd, compile_and, compile_clause, compile_pattern
from eventbridge.matching.consistency import (
    Demand,
    Leaves,
    can_be_met,
    can_leaves_be_met,
    drop_excluded,
    every,
    flatten,
    some,
    some_wanted,
)
from eventbridge.matching.pattern.location import json_path
from eventbridge.matching.pattern.nodes import And, Clause, Field, Path, Pattern
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.matching.pattern.write import join_clauses, write_clauses, write_condition
from eventbridge.processes import check_cancelled

__all__ = [
    "CheckedCondition",
    "Leaves",
    "UnmetCondition",
    "check_each",
    "explain",
    "flatten",
    "matches",
    "matches_leaves",
]


def matches(pattern: Pattern | str | bytes | Mapping[Any, Any], event: str | bytes | Mapping[Any, Any]) -> bool:
    """Return whether a pattern matches an event, given as JSON text or as a mapping.

    Raises EventError if the event is not one strict JSON object, and PatternError if a pattern given as text or as a
    mapping is invalid.
    """
    parsed = pattern if isinstance(pattern, Pattern) else parse_pattern(pattern)
    document = parse_document(event) if isinstance(event, (str, bytes)) else as_document(event)
    return matches_leaves(parsed, flatten(document))


def matches_leaves(pattern: Pattern, leaves: Leaves) -> bool:
    """Return whether a pattern matches the event with these leaves, which can be reused for any number of patterns."""
    compiled = compile_pattern(pattern)
    if not _is_met(compiled.where, leaves):
        return False
    return compiled.unless is None or not _is_met(compiled.unless, leaves)


def _is_met(where: CompiledAnd, leaves: Leaves) -> bool:
    if not leaves.nested:
        return where.holds(leaves.by_path)
    return can_be_met(where.demand(leaves.by_path))


#: The maximum length of a sub-pattern in a finding. Each finding repeats the sub-patterns inside it, so their total
#: size could grow with the square of the pattern's size.
MAX_CHARACTERS: Final = 2_000


@dataclass(frozen=True)
class UnmetCondition:
    """One condition that an event does not meet.

    `path` is a JSON path in the event, `condition` is the part of the pattern as JSON text, and `values` are the
    event's values at that path, each as JSON text. `message` says the same in a sentence. A sub-pattern longer than
    MAX_CHARACTERS is truncated and ends in "...".
    """

    path: str
    condition: str
    values: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def explain(pattern: Pattern, document: Document) -> list[UnmetCondition]:
    """Return why the pattern does not match the event, one finding per failed condition; an empty list if it matches.

    The time is linear in the size of the pattern if the event has no arrays of objects.
    """
    event = _Event(flatten(document))
    where = _judge_and(pattern.where, event)
    findings = [] if can_be_met(where.demand) else _explain_and(where, event)
    if pattern.unless is not None and _is_excluded(pattern.unless.pattern, event.leaves):
        condition = write_document({"$not": write_clauses(pattern.unless.pattern)})
        findings.append(UnmetCondition("$", condition, (), f"the event matches what $not excludes: {condition}"))
    return findings


@dataclass(frozen=True)
class CheckedCondition:
    """One condition of a pattern, described as in `UnmetCondition`, and whether the event meets it."""

    met: bool
    finding: UnmetCondition


def check_each(pattern: Pattern, document: Document) -> list[CheckedCondition]:
    """Return the result of each condition of a pattern for an event, met or failed.

    For a `$or` it returns the conditions of the alternatives that are met or, if none is met, why each one fails. The
    time is linear in the size of the pattern if the event has no arrays of objects.
    """
    event = _Event(flatten(document))
    where = _judge_and(pattern.where, event)
    found = _check_and(where, event)
    if all(each.met for each in found) and not can_be_met(where.demand):
        found.append(CheckedCondition(False, _explain_conflict(where)))
    if pattern.unless is not None:
        condition = write_document({"$not": write_clauses(pattern.unless.pattern)})
        excluded = _is_excluded(pattern.unless.pattern, event.leaves)
        message = "the event matches what $not excludes" if excluded else "the event does not match what $not excludes"
        found.append(CheckedCondition(not excluded, UnmetCondition("$", condition, (), f"{message}: {condition}")))
    return found


class _Event:
    """The leaves of an event, and a cache of the values at each path as JSON text."""

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self._values: dict[Path, tuple[str, ...]] = {}

    def values(self, path: Path) -> tuple[str, ...]:
        """Return the values at a path as JSON text."""
        if path not in self._values:
            self._values[path] = tuple(write_document(leaf.value) for leaf in self.leaves.by_path.get(path, ()))
        return self._values[path]

    @cached_property
    def known_paths(self) -> frozenset[Path]:
        """The paths of all leaves, and of all objects that contain them."""
        paths = self.leaves.by_path
        return frozenset(path[:length] for path in paths for length in range(len(path) + 1))


@dataclass(frozen=True)
class _JudgedClause:
    """A clause with its demand, evaluated for one event.

    `wants` is the demand without its excluded leaves, and `possible` says whether that can be met. `written` is the
    clause's list in JSON.
    """

    clause: Clause
    demand: Demand
    wants: Demand
    possible: bool
    written: list[Any]
    alternatives: tuple[_JudgedAnd, ...] = ()


@dataclass(frozen=True)
class _JudgedAnd:
    """A sub-pattern with its judged clauses; `possible` means that it can be met if `exists: false` is ignored."""

    clauses: tuple[_JudgedClause, ...]
    demand: Demand
    wants: Demand
    possible: bool

    def to_document(self, below: Path = ()) -> Document:
        """Return the sub-pattern as a document, which shares the lists of the clauses."""
        return join_clauses(((each.clause, each.written) for each in self.clauses), below)


def _judge_and(where: And, event: _Event) -> _JudgedAnd:
    clauses = tuple(_judge_clause(clause, event) for clause in where.clauses)
    wants = every(each.wants for each in clauses)
    return _JudgedAnd(clauses, every(each.demand for each in clauses), wants, can_leaves_be_met(wants))


def _judge_clause(clause: Clause, event: _Event) -> _JudgedClause:
    check_cancelled()
    if isinstance(clause, Field):
        demand = compile_clause(clause).demand(event.leaves.by_path)
        wants = drop_excluded(demand)
        return _JudgedClause(
            clause, demand, wants, can_leaves_be_met(wants), [write_condition(each) for each in clause.conditions]
        )
    inner = tuple(_judge_and(alternative, event) for alternative in clause.alternatives)
    wants = some_wanted(each.wants for each in inner)
    demand = some(each.demand for each in inner)
    return _JudgedClause(
        clause, demand, wants, can_leaves_be_met(wants), [each.to_document(clause.path) for each in inner], inner
    )


def _check_and(where: _JudgedAnd, event: _Event) -> list[CheckedCondition]:
    found: list[CheckedCondition] = []
    for judged in where.clauses:
        if not judged.possible:
            found += [CheckedCondition(False, each) for each in _explain_clause(judged, event)]
        elif isinstance(judged.clause, Field):
            found.append(CheckedCondition(True, _finding_of_met_field(judged, event)))
        else:
            for inner in judged.alternatives:
                if inner.possible:
                    found += _check_and(inner, event)
    return found


def _finding_of_met_field(judged: _JudgedClause, event: _Event) -> UnmetCondition:
    path, condition = judged.clause.path, write_document(judged.written)
    values = event.values(path)
    if values:
        message = f"{_list_values(values)} {'meets' if len(values) == 1 else 'meet'} {condition}"
    else:
        message = f"there is no value, which meets {condition}"
    return UnmetCondition(json_path(path), condition, values, message)


def _explain_and(where: _JudgedAnd, event: _Event) -> list[UnmetCondition]:
    """Return findings for the clauses that fail for every choice of leaves or, if none does, one for their conflict."""
    failed = [judged for judged in where.clauses if not judged.possible]
    if failed:
        return [finding for judged in failed for finding in _explain_clause(judged, event)]
    return [_explain_conflict(where)]


def _explain_clause(judged: _JudgedClause, event: _Event) -> list[UnmetCondition]:
    path = judged.clause.path
    if isinstance(judged.clause, Field):
        return [_explain_field(judged, event)]
    condition = write_head({"$or": judged.written}, MAX_CHARACTERS)
    findings = [UnmetCondition(json_path(path), condition, (), "no alternative of $or is met")]
    for alternative in judged.alternatives:
        findings += _explain_and(alternative, event)
    return findings


def _explain_field(judged: _JudgedClause, event: _Event) -> UnmetCondition:
    path, condition = judged.clause.path, write_document(judged.written)
    values = event.values(path)
    if values:
        message = f"{_list_values(values)} {'does' if len(values) == 1 else 'do'} not meet {condition}"
    elif path in event.known_paths:
        message = f"there is an object instead of a value; {condition} is required"
    else:
        message = f"there is no value; {condition} is required"
    return UnmetCondition(json_path(path), condition, values, message)


def _explain_conflict(where: _JudgedAnd) -> UnmetCondition:
    condition = write_head(where.to_document(), MAX_CHARACTERS)
    message = f"each condition can be met, but not all in the same elements of arrays: {condition}"
    return UnmetCondition("$", condition, (), message)


def _list_values(values: tuple[str, ...]) -> str:
    shown = [value if len(value) <= 80 else value[:77] + "..." for value in values[:5]]
    return ", ".join(shown) + (f" and {len(values) - 5} more" if len(values) > 5 else "")


def _is_excluded(where: And, leaves: Leaves) -> bool:
    return can_be_met(compile_and(where).demand(leaves.by_path))
