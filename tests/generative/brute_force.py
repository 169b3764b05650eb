"""Implements the pattern language again, as literally as possible: it tries every choice of leaves.

It shares no code with the matcher: raw JSON in, `Fraction` for numbers, Python's `re` for wildcards and regular
expressions, `ipaddress` for blocks. Its time is exponential, so it is only for small patterns and events.
"""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from eventbridge.event.json_document import Number

Spot = tuple[Any, ...]  # keys and indices from the top of the event down to a leaf


def matches(pattern: dict[str, Any], event: dict[str, Any]) -> bool:
    """Return whether a raw pattern matches a raw event according to the definition."""
    leaves = list(walk(event, ()))
    where = {key: value for key, value in pattern.items() if key != "$not"}
    if not any(conjunction_matches(conjunction, leaves) for conjunction in expand(where, ())):
        return False
    return "$not" not in pattern or not matches(pattern["$not"], event)


def choices(pattern: dict[str, Any], event: dict[str, Any]) -> int:
    """Return the approximate number of choices of leaves to try."""
    where = {key: value for key, value in pattern.items() if key != "$not"}
    spots = [keys(spot) for spot, _ in walk(event, ())]
    return sum(math.prod(spots.count(path) + 1 for path, _ in conjunction) for conjunction in expand(where, ()))


def walk(value: Any, spot: Spot) -> Iterator[tuple[Spot, Any]]:
    """Yield every scalar with the keys and indices that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*spot, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from walk(inner, (*spot, index))
    else:
        yield spot, value


def expand(pattern: dict[str, Any], path: Spot) -> list[list[tuple[Spot, list[Any]]]]:
    """Return the pattern without `$or`: all conjunctions of (path, leaf list)."""
    choices: list[list[list[tuple[Spot, list[Any]]]]] = []
    for key, value in pattern.items():
        if key == "$or":
            choices.append([conjunction for alternative in value for conjunction in expand(alternative, path)])
        elif isinstance(value, dict):
            choices.append(expand(value, (*path, key)))
        else:
            choices.append([[((*path, key), value)]])
    return [list(itertools.chain(*choice)) for choice in itertools.product(*choices)]


def conjunction_matches(conjunction: list[tuple[Spot, list[Any]]], leaves: list[tuple[Spot, Any]]) -> bool:
    """Try every choice of a leaf, or of none where that is allowed, for every leaf list."""
    options: list[list[Spot | None]] = []
    for path, conditions in conjunction:
        at_path = [(spot, value) for spot, value in leaves if keys(spot) == path]
        found: list[Spot | None] = [spot for spot, value in at_path if any(meets(value, c) for c in conditions)]
        if {"exists": False} in conditions:
            found.append(None)
        options.append(found)
    for choice in itertools.product(*options):
        chosen = [spot for spot in choice if spot is not None]
        if not all(consistent(one, other) for one, other in itertools.combinations(chosen, 2)):
            continue
        absent = [path for (path, _), spot in zip(conjunction, choice, strict=True) if spot is None]
        left = [spot for spot, _ in leaves if keys(spot) in absent and all(consistent(spot, c) for c in chosen)]
        if not left:
            return True
    return False


def keys(spot: Spot) -> Spot:
    """Return the keys without the indices, because arrays are transparent."""
    return tuple(step for step in spot if isinstance(step, str))


def consistent(one: Spot, other: Spot) -> bool:
    """Return whether two leaves are not in different elements of one array, ignoring elements that are scalars."""
    for depth, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return isinstance(left, str) or depth + 1 in (len(one), len(other))
    return True


def meets(value: Any, condition: Any) -> bool:
    """Return whether a scalar meets one condition of a leaf list."""
    if not isinstance(condition, dict):
        return same(value, condition)
    ((operator, argument),) = condition.items()
    if operator == "exists":
        return bool(argument)
    if operator == "all":
        return all(meets(value, inner) for inner in argument)
    if operator == "anything-but":
        return not any(meets(value, inner) for inner in excluded(argument))
    if operator == "numeric":
        return isinstance(value, Number) and in_range(Fraction(value.text), argument)
    return isinstance(value, str) and meets_text(value, operator, argument)


def excluded(argument: Any) -> list[Any]:
    """Return the values that anything-but excludes, as conditions."""
    if isinstance(argument, dict):
        ((operator, texts),) = argument.items()
        return [{operator: text} for text in (texts if isinstance(texts, list) else [texts])]
    return argument if isinstance(argument, list) else [argument]


def same(value: Any, wanted: Any) -> bool:
    """Return whether two scalars are equal, type included."""
    if isinstance(value, Number) and isinstance(wanted, Number):
        return Fraction(value.text) == Fraction(wanted.text)
    return type(value) is type(wanted) and value == wanted


def in_range(value: Fraction, bounds: list[Any]) -> bool:
    """Return whether every comparison holds."""
    responses = []
    for comparison, number in zip(bounds[::2], bounds[1::2], strict=True):
        bound = Fraction(number.text)
        responses.append(
            (comparison in ("=", "<=", ">=") and value == bound)
            or (comparison in ("<", "<=", "!=") and value < bound)
            or (comparison in (">", ">=", "!=") and value > bound)
        )
    return all(responses)


def meets_text(value: str, operator: str, argument: Any) -> bool:
    """Return whether a string meets an operator for strings."""
    if isinstance(argument, dict):
        return meets_text(value.casefold(), operator, argument["equals-ignore-case"].casefold())
    if operator == "cidr":
        return in_block(value, argument)
    if operator == "wildcard":
        tokens = re.findall(r"\\.|[^\\]", argument, re.S)
        expression = "".join(".*" if token == "*" else re.escape(token[-1]) for token in tokens)
        return re.fullmatch(expression, value, re.S) is not None
    if operator == "regex":
        return re.fullmatch(argument, value, re.A) is not None
    responses = {
        "exactly": value == argument,
        "prefix": value[: len(argument)] == argument,
        "suffix": value[max(len(value) - len(argument), 0) :] == argument,
        "contains": any(value[start:].startswith(argument) for start in range(len(value) + 1)),
        "equals-ignore-case": value.casefold() == argument.casefold(),
    }
    return responses[operator]


def in_block(value: str, block: str) -> bool:
    """Return whether a string is an address in a block."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address in ipaddress.ip_network(block, strict=False)
