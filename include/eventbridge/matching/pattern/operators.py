"""Reads the conditions of a leaf list: one function per operator, each reporting every error it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from eventbridge.event.json_document import type_name
from eventbridge.matching.pattern.location import Location
from eventbridge.matching.pattern.nearest import nearest
from eventbridge.matching.pattern.nodes import All, AnythingBut, Condition, Exactly, Exists, Prefix, Suffix
from eventbridge.matching.pattern.numeric import read_numeric
from eventbridge.matching.pattern.raw import is_scalar, read_scalar, read_text, shown
from eventbridge.matching.pattern.text import (
    read_cidr,
    read_contains,
    read_end,
    read_equals_ignore_case,
    read_regex,
    read_wildcard,
)

Reader: TypeAlias = Callable[[Any, Location], Condition | None]


def read_condition(value: Any, here: Location) -> Condition | None:
    """Return the condition that an element of a leaf list is; `None` if errors were reported instead."""
    if is_scalar(value):
        scalar, good = read_scalar(value, here)
        return Exactly(scalar) if good else None
    if not isinstance(value, Mapping):
        here.wrong("a list inside a list", value, "Put its values straight into the outer list: they are ORed anyway.")
        return None
    if not value:
        here.wrong("an empty object is not a condition", value, 'To ask for any value write {"exists": true}.')
        return None
    if len(value) > 1:
        one_each = ", ".join(shown({key: inner}) for key, inner in value.items())
        here.wrong(
            f"{len(value)} operators in one condition",
            value,
            f'For all of them on one leaf write {{"all": [{one_each}]}}, for any of them separate objects.',
        )
    conditions = [_read_operator(key, inner, here) for key, inner in value.items()]
    return conditions[0] if len(conditions) == 1 else None


def _read_operator(name: Any, value: Any, here: Location) -> Condition | None:
    reader = READERS.get(name) if isinstance(name, str) else None
    if reader is not None:
        return reader(value, here / name)
    if name in ("$or", "$not"):
        here.wrong(f'"{name}" inside a leaf list', {name: value}, _ELSEWHERE[name])
        return None
    meant = nearest(str(name), READERS)
    remedy = f'Did you mean "{meant}"?' if meant else f"The operators are {', '.join(READERS)}."
    here.wrong(f"unknown operator {shown(name)}", {str(name): value}, remedy)
    return None


_ELSEWHERE = {
    "$or": "The values of a leaf list are ORed already; $or stands beside keys and holds sub-patterns.",
    "$not": "Use anything-but here; $not stands at the top of the pattern only.",
}


def _read_exactly(value: Any, here: Location) -> Exactly | None:
    if is_scalar(value) and not isinstance(value, str):
        here.wrong(
            f"a string is expected, not {type_name(value)}", value, f"Write {shown(value)} itself into the list."
        )
        return None
    text = read_text(value, here, '{"exactly": "text"}')
    return None if text is None else Exactly(text)


def _read_exists(value: Any, here: Location) -> Exists | None:
    if isinstance(value, bool):
        return Exists(value)
    here.wrong(
        f"true or false is expected, not {type_name(value)}", value, 'Write {"exists": true} or {"exists": false}.'
    )
    return None


def _read_all(value: Any, here: Location) -> All | None:
    if not isinstance(value, (list, tuple)) or not value:
        remedy = 'Write {"all": [condition, ...]}, as in {"all": [{"prefix": "a"}, {"suffix": "z"}]}.'
        here.wrong("a list of conditions is expected", value, remedy)
        return None
    conditions = [read_condition(inner, here / index) for index, inner in enumerate(value)]
    for index, condition in enumerate(conditions):
        if condition == Exists(False):
            remedy = 'Put {"exists": false} into the leaf list, beside the all: the list is ORed.'
            (here / index).wrong("no leaf can be absent and meet other conditions", value[index], remedy)
    found = [condition for condition in conditions if condition is not None and condition != Exists(False)]
    return All(tuple(found)) if len(found) == len(value) else None


_BELOW_ANYTHING_BUT: Final = ("prefix", "suffix", "contains", "equals-ignore-case", "wildcard", "cidr", "regex")
_NOT_EMPTY: Final = ("prefix", "suffix", "contains")


def _read_anything_but(value: Any, here: Location) -> AnythingBut | None:
    if isinstance(value, Mapping):
        return _read_anything_but_operator(value, here)
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values:
        here.wrong("an empty list", value, 'Write the values that shall not match, as in {"anything-but": ["a", "b"]}.')
        return None
    scalars = []
    for index, inner in enumerate(values):
        there = here / index if isinstance(value, (list, tuple)) else here
        if is_scalar(inner):
            scalar, good = read_scalar(inner, there)
            scalars += [Exactly(scalar)] if good else []
        else:
            remedy = 'A list holds plain values only; write {"anything-but": {"prefix": ["a", "b"]}} for an operator.'
            there.wrong(f"{type_name(inner)} in the list of anything-but", inner, remedy)
    return AnythingBut(tuple(scalars)) if len(scalars) == len(values) else None


def _read_anything_but_operator(value: Mapping[Any, Any], here: Location) -> AnythingBut | None:
    if len(value) != 1:
        here.wrong(f"{len(value)} operators below anything-but", value, "Write one; combine several with all.")
        return None
    name, argument = next(iter(value.items()))
    if name not in _BELOW_ANYTHING_BUT:
        meant = nearest(str(name), _BELOW_ANYTHING_BUT)
        remedy = f'Did you mean "{meant}"?' if meant and name not in READERS else ""
        remedy = remedy or f"It takes plain values or one of {', '.join(_BELOW_ANYTHING_BUT)}."
        here.wrong(f"anything-but takes no {shown(name)}", value, remedy)
        return None
    here = here / name
    listed = isinstance(argument, (list, tuple))
    arguments = argument if listed else [argument]
    if not arguments:
        here.wrong("an empty list", argument, f'Write {{"anything-but": {{"{name}": "text"}}}} or a list of strings.')
        return None
    conditions = [
        _read_excluded(name, inner, here / index if listed else here) for index, inner in enumerate(arguments)
    ]
    found = tuple(condition for condition in conditions if condition is not None)
    return AnythingBut(cast(Any, found)) if len(found) == len(arguments) else None


def _read_excluded(name: str, value: Any, here: Location) -> Condition | None:
    if isinstance(value, Mapping):
        remedy = 'Write strings; a prefix or suffix whatever its case is {"regex": "(?i)text.*"}.'
        here.wrong("a string is expected, not an object", value, remedy)
        return None
    if value == "" and name in _NOT_EMPTY:
        here.wrong(f"every string has the empty {_PART[name]}", value, f"Write the {_PART[name]} that shall not occur.")
        return None
    return READERS[name](value, here)


_PART: Final = {"prefix": "prefix", "suffix": "suffix", "contains": "part"}

READERS: Final[dict[str, Reader]] = {
    "exactly": _read_exactly,
    "prefix": read_end(Prefix),
    "suffix": read_end(Suffix),
    "equals-ignore-case": read_equals_ignore_case,
    "wildcard": read_wildcard,
    "contains": read_contains,
    "regex": read_regex,
    "numeric": read_numeric,
    "exists": _read_exists,
    "cidr": read_cidr,
    "anything-but": _read_anything_but,
    "all": _read_all,
}
