"""Parses a filter pattern into nodes and finds all its errors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from eventbridge.errors import EventError, PatternError
from eventbridge.event.json_document import MAXIMUM_DEPTH, Number, parse_document, type_name
from eventbridge.matching.pattern.expression import Expressions, ExpressionSizes
from eventbridge.matching.pattern.location import Location, format_value, is_scalar
from eventbridge.matching.pattern.nodes import And, Clause, Condition, Field, Not, Or, Path, Pattern
from eventbridge.matching.pattern.operators import READERS, read_condition
from eventbridge.processes import check_cancelled


def parse_pattern(source: str | bytes | Mapping[Any, Any]) -> Pattern:
    """Return the pattern in JSON text or in a mapping that was read from JSON or YAML.

    Raises PatternError for the first error; `find_errors` returns all of them. In a mapping, numbers may be Python's,
    `Decimal` or `Number`; a `float` has already lost the digits beyond its precision.
    """
    where, unless, errors = _read(source)
    if errors:
        raise errors[0]
    return Pattern(where, unless)


def find_errors(
    source: str | bytes | Mapping[Any, Any], expressions: ExpressionSizes | None = None
) -> list[PatternError]:
    """Return all errors in a new pattern; its regular expressions have tighter limits than in `parse_pattern`.

    `expressions` counts the regular expressions of all patterns that are read together.
    """
    return _read(source, ExpressionSizes() if expressions is None else expressions)[2]


class _RepeatingObject(dict[str, Any]):
    """An object in JSON text that repeats keys; `repeated` lists them."""

    repeated: list[str]


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeating = _RepeatingObject(found)
    times = Counter(key for key, _ in pairs)
    repeating.repeated = sorted(key for key, count in times.items() if count > 1)
    return repeating


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, object_pairs_hook=_object_of_pairs)


def _read(
    source: str | bytes | Mapping[Any, Any], expressions: ExpressionSizes | None = None
) -> tuple[And, Not | None, list[PatternError]]:
    top = Location(expressions=Expressions(expressions))
    raw: Any = source
    if isinstance(source, (str, bytes)):
        try:
            parse_document(source)  # checks strict JSON; the second reading finds repeated keys
        except EventError as error:
            top.wrong(str(error), source, 'Write one JSON object, as in {"type": ["order.placed"]}.')
            return And(()), None, top.errors
        raw = _DECODER.decode(source if isinstance(source, str) else source.decode("utf-8"))
    if not isinstance(raw, Mapping):
        top.wrong(f"a pattern must be an object, not {type_name(raw)}", raw, 'Write {"type": ["order.placed"]}.')
        return And(()), None, top.errors
    _refuse_repeated(raw, top)
    where = And(_read_clauses({key: value for key, value in raw.items() if key != "$not"}, (), top))
    unless = Not(And(_read_below_not(raw["$not"], top / "$not"))) if "$not" in raw else None
    return where, unless, top.errors


def _read_below_not(value: Any, here: Location) -> tuple[Clause, ...]:
    if not isinstance(value, Mapping) or not value:
        remedy = 'Write {"$not": {"type": ["order.cancelled"]}}.'
        here.wrong("$not takes one sub-pattern, an object that is not empty", value, remedy)
        return ()
    return _read_object(value, (), here)


def _read_object(value: Mapping[Any, Any], path: Path, here: Location) -> tuple[Clause, ...]:
    _refuse_repeated(value, here)
    return _read_clauses(value, path, here)


def _refuse_repeated(value: Mapping[Any, Any], here: Location) -> None:
    for key in value.repeated if isinstance(value, _RepeatingObject) else []:
        remedy = "Only the last would count; put the values into one list, or the conditions into all."
        (here / key).wrong(f"the key {format_value(key)} appears twice", value[key], remedy)


def _read_clauses(value: Mapping[Any, Any], path: Path, here: Location) -> tuple[Clause, ...]:
    if len(here.steps) > MAXIMUM_DEPTH:
        here.wrong(
            f"nested deeper than {MAXIMUM_DEPTH}", value, "No event is nested so deeply: make the pattern flatter."
        )
        return ()
    clauses: list[Clause] = []
    for key, inner in value.items():
        check_cancelled()
        if not isinstance(key, str):
            here.wrong(f"{type_name(key)} as a key: {format_value(key)}", value, f'Quote it: "{key}".')
        elif key == "$or":
            clauses += _read_or(inner, path, here / key)
        elif key == "$not":
            remedy = "Move it to the top of the pattern, or use anything-but in the leaf list."
            (here / key).wrong("$not is allowed only at the top of a pattern", inner, remedy)
        elif isinstance(inner, Mapping) and inner:
            clauses += _read_object(inner, (*path, str(key)), here / key)
        else:
            clauses += _read_field(inner, (*path, str(key)), here / key)
    return tuple(clauses)


def _read_field(value: Any, path: Path, here: Location) -> tuple[Field, ...]:
    if isinstance(value, (list, tuple)) and value:
        return (Field(path, _read_conditions(value, here)),)
    if isinstance(value, (list, tuple)):
        here.wrong(
            "an empty list matches nothing", value, 'Write the values; to match any value, write [{"exists": true}].'
        )
    elif isinstance(value, Mapping):
        here.wrong(
            "an empty object", value, 'Write what it must contain; to match any value, write [{"exists": true}].'
        )
    elif path[-1] in READERS and len(path) > 1:
        remedy = f"Operators are written in a list: {format_value({path[-2]: [{path[-1]: value}]})}."
        here.wrong(f"the operator {path[-1]} is not in a list", value, remedy)
    else:
        here.wrong(
            f"{type_name(value)} where a list is expected", value, f"Write it as a list: [{format_value(value)}]."
        )
    return ()


def _read_conditions(values: list[Any] | tuple[Any, ...], here: Location) -> tuple[Condition, ...]:
    conditions = []
    for index, value in enumerate(values):
        check_cancelled()
        condition = read_condition(value, here / index)
        if condition is not None:
            conditions.append(condition)
    return tuple(conditions)


def _read_or(value: Any, path: Path, here: Location) -> tuple[Or, ...]:
    if not isinstance(value, (list, tuple)) or len(value) < 2:
        remedy = 'Write two or more sub-patterns: {"$or": [{"a": [1]}, {"b": [2]}]}; a single one needs no $or.'
        here.wrong("$or takes a list of two or more sub-patterns", value, remedy)
        return ()
    alternatives = []
    for index, inner in enumerate(value):
        if isinstance(inner, Mapping) and inner:
            alternatives.append(And(_read_object(inner, path, here / index)))
            continue
        what = type_name(inner) if is_scalar(inner) or inner else "an empty " + type_name(inner).split()[1]
        remedy = 'Write each as a separate object, as in {"a": [1]}; the values of one leaf belong in one list.'
        (here / index).wrong(f"{what} is not a sub-pattern", inner, remedy)
    return (Or(path, tuple(alternatives)),)
