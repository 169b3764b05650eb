"""Reads the conditions of a leaf list with one function per operator; each reports all errors that it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

from eventbridge.event.json_document import Number, type_name
from eventbridge.matching.pattern import nodes
from eventbridge.matching.pattern.address import parse_address, parse_block
from eventbridge.matching.pattern.expression import NOT_IN_RE2, ExpressionTooLarge
from eventbridge.matching.pattern.location import Location, format_value, is_scalar, nearest, read_scalar, read_text

_End = TypeVar("_End", nodes.Prefix, nodes.Suffix)


def read_end(make: type[_End]) -> Callable[[Any, Location], _End | None]:
    """Return the reader of `prefix` or `suffix`; their string may be inside `equals-ignore-case`."""
    name = make.__name__.lower()

    def read(value: Any, here: Location) -> _End | None:
        if not isinstance(value, Mapping):
            text = read_text(value, here, f'{{"{name}": "text"}}')
            return None if text is None else make(text)
        if list(value) != ["equals-ignore-case"]:
            remedy = f'Write {{"{name}": "text"}} or {{"{name}": {{"equals-ignore-case": "text"}}}}.'
            here.wrong(f"{name} does not accept {format_value(value)}", value, remedy)
            return None
        here = here / "equals-ignore-case"
        text = read_text(value["equals-ignore-case"], here, f'{{"{name}": {{"equals-ignore-case": "text"}}}}')
        return None if text is None else make(text, ignore_case=True)

    return read


def read_equals_ignore_case(value: Any, here: Location) -> nodes.EqualsIgnoreCase | None:
    """Read a string to compare by full Unicode case folding; if it is invalid, report an error and return None."""
    text = read_text(value, here, '{"equals-ignore-case": "text"}')
    return None if text is None else nodes.EqualsIgnoreCase(text)


def read_contains(value: Any, here: Location) -> nodes.Contains | None:
    """Read a string that a leaf must contain; if it is invalid, report an error at `here` and return None."""
    text = read_text(value, here, '{"contains": "text"}')
    return None if text is None else nodes.Contains(text)


def read_wildcard(value: Any, here: Location) -> nodes.Wildcard | None:
    """Read a string in which * matches any characters; if it is invalid, report an error at `here` and return None."""
    text = read_text(value, here, '{"wildcard": "text*"}')
    if text is None:
        return None
    good, position, after_star = True, 0, False
    while position < len(text):
        character = text[position]
        if character == "\\" and text[position + 1 : position + 2] not in ("*", "\\"):
            here.wrong(
                f"a backslash before {format_value(text[position + 1 :][:1] or 'the end')} in the wildcard",
                value,
                _ESCAPE_REMEDY,
            )
            good = False
        elif character == "\\":
            position += 1
        if character == "*" and after_star:
            here.wrong("two wildcards in a row", value, "Write one *: it stands for any run of characters.")
            return None
        after_star = character == "*"
        position += 1
    return nodes.Wildcard(text) if good else None


_ESCAPE_REMEDY = r"A backslash escapes only * and itself: \* is a star, \\ a backslash (in JSON each is doubled again)."


_SIZE_REMEDY = "Write smaller counts, such as {1,20}, or narrower classes, such as [A-Z] in place of \\pL."


def read_regex(value: Any, here: Location) -> nodes.Regex | None:
    """Read a regular expression in RE2's syntax; if it is invalid, report an error at `here` and return None."""
    text = read_text(value, here, '{"regex": "[A-Z]{2}[0-9]+"}')
    if text is None:
        return None
    if here.expressions.all.are_too_large:  # already reported as an error
        return None
    try:
        here.expressions.add(text)
    except ExpressionTooLarge as error:
        here.wrong(f"the regular expression {format_value(text)} {error}", value, _SIZE_REMEDY)
        return None
    except ValueError as error:
        remedy = "Correct the expression; its syntax is RE2's (https://github.com/google/re2/wiki/Syntax)."
        if any(sign in text for sign in NOT_IN_RE2):
            remedy = (
                "RE2 has no look-around, back-references or possessive repetition; use all or anything-but instead."
            )
        elif "repetition size" in str(error):
            remedy = "RE2 repeats at most 1,000 times, and multiplies nested counts: write smaller counts, or +."
        here.wrong(f"not a valid RE2 expression: {error}", value, remedy)
        return None
    return nodes.Regex(text)


def read_cidr(value: Any, here: Location) -> nodes.Cidr | None:
    """Read a block of addresses in strict spelling; if it is invalid, report an error at `here` and return None."""
    text = read_text(value, here, '{"cidr": "10.0.0.0/8"}')
    if text is None:
        return None
    if parse_block(text) is not None:
        return nodes.Cidr(text)
    address, _, mask = text.partition("/")
    if parse_address(address) is None:
        remedy = "Write an IPv4 or IPv6 address without leading zeros, a slash and the mask, as in 10.0.0.0/8."
    elif not mask:
        remedy = f'Add the mask: "{address}/{128 if ":" in address else 32}" is this address alone.'
    else:
        remedy = f"The mask must be a number from 0 to {128 if ':' in address else 32} without leading zeros."
    here.wrong(f"{format_value(text)} is not a CIDR block", value, remedy)
    return None


_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_OTHER_COMPARISONS: Final = {"==": "=", "<>": "!=", "=>": ">=", "=<": "<=", "≤": "<=", "≥": ">=", "≠": "!="}


def read_numeric(value: Any, here: Location) -> nodes.Numeric | None:
    """Read a comparison with a number, or a range; if it is invalid, report errors at `here` and return None."""
    if not isinstance(value, (list, tuple)) or len(value) not in (2, 4):
        remedy = 'Write [">", 5] or a range such as [">=", 0, "<", 10].'
        if not isinstance(value, bool) and isinstance(value, (int, float, Number)):
            remedy = f'Write ["=", {format_value(value)}].'
        here.wrong("a comparison and a number are expected, once or twice", value, remedy)
        return None
    bounds = []
    for index in range(0, len(value), 2):
        comparison = _read_comparison(value[index], here / index)
        number = _read_number(value[index + 1], here / (index + 1))
        if comparison is not None and number is not None:
            bounds.append((comparison, number))
    if 2 * len(bounds) < len(value):
        return None
    return nodes.Numeric(tuple(bounds)) if len(bounds) == 1 or _is_range(bounds, value, here) else None


def _read_comparison(value: Any, here: Location) -> nodes.Comparison | None:
    if isinstance(value, str) and value in _COMPARISONS:
        return cast(nodes.Comparison, str(value))
    meant = _OTHER_COMPARISONS.get(value) if isinstance(value, str) else None
    remedy = f'Did you mean "{meant}"?' if meant else "The comparisons are = != < <= > >=."
    here.wrong(f"unknown comparison {format_value(value)}", value, remedy)
    return None


def _read_number(value: Any, here: Location) -> Number | None:
    scalar, good = read_scalar(value, here) if is_scalar(value) else (None, True)
    if isinstance(scalar, Number) or not good:
        return scalar if isinstance(scalar, Number) else None
    remedy = "Write a JSON number."
    if isinstance(value, str) and Number.is_number(value):
        remedy = f"Write {value} without quotes."
    here.wrong(f"a number is expected, not {type_name(value)}", value, remedy)
    return None


def _is_range(bounds: list[tuple[nodes.Comparison, Number]], value: Any, here: Location) -> bool:
    (lower_sign, lower), (upper_sign, upper) = bounds
    if lower_sign not in (">", ">=") or upper_sign not in ("<", "<="):
        remedy = 'A range is a lower bound (> or >=), then an upper one (< or <=), as in [">=", 0, "<", 10].'
        here.wrong(f"{format_value(value)} is not a range", value, remedy)
        return False
    if lower > upper or (lower == upper and (lower_sign, upper_sign) != (">=", "<=")):
        here.wrong(f"no number is in {format_value(value)}", value, "The lower bound must lie below the upper one.")
        return False
    return True


Reader: TypeAlias = Callable[[Any, Location], nodes.Condition | None]


def read_condition(value: Any, here: Location) -> nodes.Condition | None:
    """Read one element of a leaf list as a condition; if it is invalid, report errors at `here` and return None."""
    if is_scalar(value):
        scalar, good = read_scalar(value, here)
        return nodes.Exactly(scalar) if good else None
    if not isinstance(value, Mapping):
        here.wrong("a list inside a list", value, "Put its values straight into the outer list: they are ORed anyway.")
        return None
    if not value:
        here.wrong("an empty object is not a condition", value, 'To match any value, write {"exists": true}.')
        return None
    if len(value) > 1:
        one_each = ", ".join(format_value({key: inner}) for key, inner in value.items())
        here.wrong(
            f"{len(value)} operators in one condition",
            value,
            f'To require all of them, write {{"all": [{one_each}]}}; to accept any of them, write separate objects.',
        )
    conditions = [_read_operator(key, inner, here) for key, inner in value.items()]
    return conditions[0] if len(conditions) == 1 else None


def _read_operator(name: Any, value: Any, here: Location) -> nodes.Condition | None:
    reader = READERS.get(name) if isinstance(name, str) else None
    if reader is not None:
        return reader(value, here / name)
    if name in ("$or", "$not"):
        here.wrong(f'"{name}" inside a leaf list', {name: value}, _MISPLACED_REMEDIES[name])
        return None
    meant = nearest(str(name), READERS)
    remedy = f'Did you mean "{meant}"?' if meant else f"The operators are {', '.join(READERS)}."
    here.wrong(f"unknown operator {format_value(name)}", {str(name): value}, remedy)
    return None


_MISPLACED_REMEDIES = {
    "$or": "The values of a leaf list are ORed already; $or is a key of an object and contains sub-patterns.",
    "$not": "Use anything-but here; $not is allowed only at the top of the pattern.",
}


def _read_exactly(value: Any, here: Location) -> nodes.Exactly | None:
    if is_scalar(value) and not isinstance(value, str):
        here.wrong(
            f"a string is expected, not {type_name(value)}", value, f"Write {format_value(value)} itself into the list."
        )
        return None
    text = read_text(value, here, '{"exactly": "text"}')
    return None if text is None else nodes.Exactly(text)


def _read_exists(value: Any, here: Location) -> nodes.Exists | None:
    if isinstance(value, bool):
        return nodes.Exists(value)
    here.wrong(
        f"true or false is expected, not {type_name(value)}", value, 'Write {"exists": true} or {"exists": false}.'
    )
    return None


def _read_all(value: Any, here: Location) -> nodes.All | None:
    if not isinstance(value, (list, tuple)) or not value:
        remedy = 'Write {"all": [condition, ...]}, as in {"all": [{"prefix": "a"}, {"suffix": "z"}]}.'
        here.wrong("a list of conditions is expected", value, remedy)
        return None
    conditions = [read_condition(inner, here / index) for index, inner in enumerate(value)]
    for index, condition in enumerate(conditions):
        if condition == nodes.Exists(False):
            remedy = 'Put {"exists": false} into the leaf list, beside the all: its conditions are ORed.'
            (here / index).wrong("an absent leaf meets no other conditions", value[index], remedy)
    found = [condition for condition in conditions if condition is not None and condition != nodes.Exists(False)]
    return nodes.All(tuple(found)) if len(found) == len(value) else None


_BELOW_ANYTHING_BUT: Final = ("prefix", "suffix", "contains", "equals-ignore-case", "wildcard", "cidr", "regex")
_NOT_EMPTY: Final = ("prefix", "suffix", "contains")


def _read_anything_but(value: Any, here: Location) -> nodes.AnythingBut | None:
    if isinstance(value, Mapping):
        return _read_anything_but_operator(value, here)
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values:
        here.wrong("an empty list", value, 'Write the values that must not match, as in {"anything-but": ["a", "b"]}.')
        return None
    scalars = []
    for index, inner in enumerate(values):
        there = here / index if isinstance(value, (list, tuple)) else here
        if is_scalar(inner):
            scalar, good = read_scalar(inner, there)
            scalars += [nodes.Exactly(scalar)] if good else []
        else:
            remedy = 'A list holds plain values only; write {"anything-but": {"prefix": ["a", "b"]}} for an operator.'
            there.wrong(f"{type_name(inner)} in the list of anything-but", inner, remedy)
    return nodes.AnythingBut(tuple(scalars)) if len(scalars) == len(values) else None


def _read_anything_but_operator(value: Mapping[Any, Any], here: Location) -> nodes.AnythingBut | None:
    if len(value) != 1:
        here.wrong(f"{len(value)} operators below anything-but", value, "Write one; combine several with all.")
        return None
    name, argument = next(iter(value.items()))
    if name not in _BELOW_ANYTHING_BUT:
        meant = nearest(str(name), _BELOW_ANYTHING_BUT)
        remedy = f'Did you mean "{meant}"?' if meant and name not in READERS else ""
        remedy = remedy or f"It takes plain values or one of {', '.join(_BELOW_ANYTHING_BUT)}."
        here.wrong(f"anything-but does not accept {format_value(name)}", value, remedy)
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
    return nodes.AnythingBut(cast(Any, found)) if len(found) == len(arguments) else None


def _read_excluded(name: str, value: Any, here: Location) -> nodes.Condition | None:
    if isinstance(value, Mapping):
        remedy = 'Write strings; for a prefix or suffix in any case, write {"regex": "(?i)text.*"}.'
        here.wrong("a string is expected, not an object", value, remedy)
        return None
    if value == "" and name in _NOT_EMPTY:
        here.wrong(
            f"every string has the empty {_PART_NAMES[name]}",
            value,
            f"Write the {_PART_NAMES[name]} that must not occur.",
        )
        return None
    return READERS[name](value, here)


_PART_NAMES: Final = {"prefix": "prefix", "suffix": "suffix", "contains": "part"}

READERS: Final[dict[str, Reader]] = {
    "exactly": _read_exactly,
    "prefix": read_end(nodes.Prefix),
    "suffix": read_end(nodes.Suffix),
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
