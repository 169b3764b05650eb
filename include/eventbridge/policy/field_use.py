"""Finds the rules that use a field or accept an event type, so that reports of schema changes can name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eventbridge.errors import PatternError, TransformError
from eventbridge.matching.compiled import acceptance
from eventbridge.matching.pattern.nodes import And, Clause, Field, Pattern
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.model.event_schema import SchemaChange
from eventbridge.policy.schema import path_of
from eventbridge.rules import Rule, RuleSet
from eventbridge.rules.model import Target, Transform
from eventbridge.transform.jsonpath import parse_path

#: The forms of transforms whose paths can be parsed. Expressions are only searched for the name of a field.
_BY_PATHS = ("JSONPATH", "TEMPLATE", "FIELDS")
_EXPRESSIONS = ("JSONATA", "SQL")


def rules_using(rules: RuleSet, change: SchemaChange) -> list[str]:
    """Return the sorted names of the bus's rules whose patterns or transforms use the changed fields.

    For a new type, these are the rules whose patterns test the type and accept it. For a field, they are the rules that
    accept the type and name the field or its parent in the pattern, `where`, `ordering_key`, `not_before`, `expect` or
    a transform; in an expression, the field's name must occur as a word. A rule that only passes on complete events
    does not use a field.
    """
    return sorted(rule.name for rule in rules.rules.values() if rule.bus == change.bus and _uses(rule, change))


def users_of_fields(rules: Iterable[Rule], type_: str, paths: Sequence[str]) -> dict[str, list[str]]:
    """Return, for each field of a type, the names of the rules that accept the type and use the field. The rules all
    belong to one bus."""
    found: dict[str, list[str]] = {path: [] for path in paths}
    for rule in rules:
        try:
            pattern = parse_pattern(rule.pattern)
        except PatternError:
            continue
        if _accepts_type(pattern, type_) is not False:
            used, texts = list(_paths(rule, pattern)), list(_expressions(rule))
            for path in paths:
                if _uses_path(used, texts, path):
                    found[path].append(rule.name)
    return found


def pattern_fields(rule: Rule) -> list[str]:
    """Return the paths of the fields that a rule's pattern tests."""
    try:
        return list(dict.fromkeys(_pattern_paths(parse_pattern(rule.pattern))))
    except PatternError:  # a newer version of the pattern language may accept it
        return []


def accepts_type(rule: Rule, type_: str) -> bool:
    """Return whether a rule's pattern may accept events of a type."""
    try:
        return _accepts_type(parse_pattern(rule.pattern), type_) is not False
    except PatternError:
        return True


def _uses(rule: Rule, change: SchemaChange) -> bool:
    try:
        pattern = parse_pattern(rule.pattern)
    except PatternError:  # a newer version of the pattern language may accept it
        return False
    asked = _accepts_type(pattern, change.type)
    if not change.path:
        return asked is True
    return asked is not False and _uses_path(_paths(rule, pattern), _expressions(rule), change.path)


def _uses_path(used: Iterable[str], expressions: Iterable[str], path: str) -> bool:
    """Return whether a field is among the paths of a rule, or a word of its expressions."""
    if any(_concerns(each, path) for each in used):
        return True
    word = re.compile(rf"\b{re.escape(path.rpartition('.')[2].strip(chr(34)))}\b")
    return any(word.search(text) for text in expressions)


def _accepts_type(pattern: Pattern, type_: str) -> bool | None:
    """Return whether a pattern's conditions on the type accept `type_`; None if it has none outside `$or`."""
    asked = [each for each in pattern.where.clauses if isinstance(each, Field) and each.path == ("type",)]
    if not asked:
        return None
    return all(any(acceptance(condition)(type_) for condition in each.conditions) for each in asked)


def _concerns(used: str, changed: str) -> bool:
    """Return whether a changed path concerns a rule that uses another: both are equal, or one contains the other."""
    return used == changed or changed.startswith(f"{used}.") or used.startswith(f"{changed}.")


def _paths(rule: Rule, pattern: Pattern) -> Iterator[str]:
    """Yield the paths that a rule names, except `data` itself."""
    yield from _pattern_paths(pattern)
    texts = [text for target in rule.targets.values() for text in _texts(target)]
    if rule.expect is not None:
        texts += rule.expect.fields
    for text in texts:
        try:
            path = path_of(parse_path(text).steps)
        except TransformError:
            continue
        if path != "data":
            yield path


def _pattern_paths(pattern: Pattern) -> Iterator[str]:
    parts = (pattern.where, pattern.unless.pattern) if pattern.unless else (pattern.where,)
    yield from (path_of(each.path) for each in _fields(parts))


def _fields(parts: Iterable[And]) -> Iterator[Field]:
    for part in parts:
        for clause in part.clauses:
            yield from _fields_of(clause)


def _fields_of(clause: Clause) -> Iterator[Field]:
    if isinstance(clause, Field):
        yield clause
    else:
        yield from _fields(clause.alternatives)


def _texts(target: Target) -> Iterator[str]:
    """Yield those strings of a target that may be paths."""
    transform: Transform | None = getattr(target, "transform", None)
    if transform is not None and transform.form in _BY_PATHS:
        yield from _strings(transform.value)
        yield from _strings(transform.steps)
    for name in ("ordering_key", "not_before"):
        if isinstance(value := getattr(target, name, None), str):
            yield value


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if value.startswith("$"):
            yield value
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _strings(below)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _strings(below)


def _expressions(rule: Rule) -> Iterator[str]:
    if rule.where is not None:
        yield rule.where
    for target in rule.targets.values():
        transform: Transform | None = getattr(target, "transform", None)
        if transform is not None and transform.form in _EXPRESSIONS and isinstance(transform.value, str):
            yield transform.value
