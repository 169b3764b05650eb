"""Whether a condition accepts a leaf: one small function for the meaning of each operator."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from eventbridge.event.json_document import Number
from eventbridge.matching.pattern.address import parse_address, parse_block
from eventbridge.matching.pattern.expression import compile_expression
from eventbridge.matching.pattern.nodes import (
    All,
    AnythingBut,
    Cidr,
    Comparison,
    Condition,
    Contains,
    EqualsIgnoreCase,
    Exactly,
    Exists,
    Numeric,
    Prefix,
    Regex,
    Scalar,
    Suffix,
    Wildcard,
)

Accept: TypeAlias = Callable[[Any], bool]
"""The test of a scalar; its argument is a `Scalar`."""

_COMPARE: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def acceptance(condition: Condition) -> Accept:
    """Return the test that a leaf must pass to meet `condition`; `Exists(False)` accepts no leaf."""
    match condition:
        case Exactly(value):
            return _exactly(value)
        case Numeric(bounds):
            return _numeric(bounds)
        case Exists(there):
            return lambda leaf: there
        case Cidr(block):
            return _cidr(block)
        case AnythingBut(none_of):
            excluded = [acceptance(inner) for inner in none_of]
            return lambda leaf: not any(accept(leaf) for accept in excluded)
        case All(conditions):
            required = [acceptance(inner) for inner in conditions]
            return lambda leaf: all(accept(leaf) for accept in required)
        case _:
            return _text_acceptance(condition)


def _text_acceptance(condition: Prefix | Suffix | EqualsIgnoreCase | Wildcard | Contains | Regex) -> Accept:
    match condition:
        case Prefix(text, ignore_case):
            return _starts(text.casefold(), str.casefold) if ignore_case else _starts(text, str)
        case Suffix(text, ignore_case):
            return _ends(text.casefold(), str.casefold) if ignore_case else _ends(text, str)
        case EqualsIgnoreCase(text):
            folded = text.casefold()
            return lambda leaf: isinstance(leaf, str) and leaf.casefold() == folded
        case Wildcard():
            return _wildcard(condition.parts)
        case Contains(text):
            return lambda leaf: isinstance(leaf, str) and text in leaf
        case Regex(expression):
            fullmatch = compile_expression(expression)
            return lambda leaf: isinstance(leaf, str) and fullmatch(leaf)


def _exactly(value: Scalar) -> Accept:
    if value is None or isinstance(value, bool):
        return lambda leaf: leaf is value
    kind = str if isinstance(value, str) else Number
    return lambda leaf: isinstance(leaf, kind) and leaf == value


def _starts(text: str, fold: Callable[[str], str]) -> Accept:
    return lambda leaf: isinstance(leaf, str) and fold(leaf).startswith(text)


def _ends(text: str, fold: Callable[[str], str]) -> Accept:
    return lambda leaf: isinstance(leaf, str) and fold(leaf).endswith(text)


def _numeric(bounds: tuple[tuple[Comparison, Number], ...]) -> Accept:
    tests = [(_COMPARE[comparison], number) for comparison, number in bounds]
    return lambda leaf: isinstance(leaf, Number) and all(compare(leaf, number) for compare, number in tests)


def _cidr(text: str) -> Accept:
    block = parse_block(text)
    assert block is not None, "the parser has checked it"

    def accept(leaf: Scalar) -> bool:
        address = parse_address(leaf) if isinstance(leaf, str) else None
        return address is not None and block.holds(address)

    return accept


def _wildcard(parts: tuple[str, ...]) -> Accept:
    """Between a fixed start and a fixed end, take each part where it first occurs: an earlier one never hurts."""
    first, middle, last = parts[0], parts[1:-1], parts[-1]
    if len(parts) == 1:
        return lambda leaf: isinstance(leaf, str) and leaf == first

    def accept(leaf: Scalar) -> bool:
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
