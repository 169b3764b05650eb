"""Writes pattern nodes as the JSON that they were parsed from, for messages and for other processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eventbridge.event.json_document import Document, JsonValue
from eventbridge.matching.pattern import nodes


def write_pattern(pattern: nodes.Pattern) -> Document:
    """Return the pattern as a document, which parses to an equal pattern."""
    written = write_clauses(pattern.where)
    if pattern.unless is not None:
        written["$not"] = write_clauses(pattern.unless.pattern)
    return written


def write_clauses(where: nodes.And, below: nodes.Path = ()) -> Document:
    """Return a sub-pattern as a document; its paths are relative to `below`, the object that contains it."""
    return join_clauses(((clause, _write_alternatives(clause)) for clause in where.clauses), below)


def join_clauses(clauses: Iterable[tuple[nodes.Clause, list[Any]]], below: nodes.Path = ()) -> Document:
    """Return a sub-pattern as a document; its paths are relative to `below`, the object that contains it.

    Each clause comes with its list in JSON: its conditions, or the alternatives of `$or`.
    """
    written: dict[str, Any] = {}
    for clause, values in clauses:
        path = clause.path[len(below) :]
        if isinstance(clause, nodes.Field):
            _object_at(written, path[:-1])[path[-1]] = values
        else:
            _object_at(written, path)["$or"] = values
    return written


def _write_alternatives(clause: nodes.Clause) -> list[Any]:
    if isinstance(clause, nodes.Field):
        return [write_condition(condition) for condition in clause.conditions]
    return [write_clauses(alternative, clause.path) for alternative in clause.alternatives]


def write_condition(condition: nodes.Condition) -> JsonValue:
    """Return one condition of a leaf list as JSON."""
    match condition:
        case nodes.Exactly(value):
            return value
        case nodes.Numeric(bounds):
            return {"numeric": [part for bound in bounds for part in bound]}
        case nodes.Exists(there):
            return {"exists": there}
        case nodes.Cidr(block):
            return {"cidr": block}
        case nodes.All(conditions):
            return {"all": [write_condition(inner) for inner in conditions]}
        case nodes.AnythingBut(none_of):
            return {"anything-but": _write_excluded([write_condition(inner) for inner in none_of])}
        case _:
            return _write_text_condition(condition)


def _write_text_condition(
    condition: nodes.Prefix | nodes.Suffix | nodes.EqualsIgnoreCase | nodes.Wildcard | nodes.Contains | nodes.Regex,
) -> dict[str, JsonValue]:
    match condition:
        case nodes.Prefix(text, ignore_case):
            return {"prefix": {"equals-ignore-case": text} if ignore_case else text}
        case nodes.Suffix(text, ignore_case):
            return {"suffix": {"equals-ignore-case": text} if ignore_case else text}
        case nodes.EqualsIgnoreCase(text):
            return {"equals-ignore-case": text}
        case nodes.Wildcard(text):
            return {"wildcard": text}
        case nodes.Contains(text):
            return {"contains": text}
        case nodes.Regex(expression):
            return {"regex": expression}


def _write_excluded(written: list[JsonValue]) -> JsonValue:
    if not isinstance(written[0], dict):
        return written
    operator = next(iter(written[0]))
    return {operator: [inner[operator] for inner in written if isinstance(inner, dict)]}


def _object_at(written: dict[str, Any], path: nodes.Path) -> dict[str, Any]:
    for key in path:
        written = written.setdefault(key, {})
    return written
