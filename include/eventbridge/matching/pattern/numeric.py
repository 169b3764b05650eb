"""Reads the operator `numeric`."""

from __future__ import annotations

from typing import Any, Final, cast

from eventbridge.event.json_document import Number, type_name
from eventbridge.matching.pattern.location import Location
from eventbridge.matching.pattern.nodes import Comparison, Numeric
from eventbridge.matching.pattern.raw import is_scalar, read_scalar, shown

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_OTHER_COMPARISONS: Final = {"==": "=", "<>": "!=", "=>": ">=", "=<": "<=", "≤": "<=", "≥": ">=", "≠": "!="}


def read_numeric(value: Any, here: Location) -> Numeric | None:
    """Read a comparison with a number, or a range of two; None, with an error at `here`, if it is invalid."""
    if not isinstance(value, (list, tuple)) or len(value) not in (2, 4):
        remedy = 'Write [">", 5] or a range such as [">=", 0, "<", 10].'
        if not isinstance(value, bool) and isinstance(value, (int, float, Number)):
            remedy = f'Write ["=", {shown(value)}].'
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
    return Numeric(tuple(bounds)) if len(bounds) == 1 or _is_range(bounds, value, here) else None


def _read_comparison(value: Any, here: Location) -> Comparison | None:
    if isinstance(value, str) and value in _COMPARISONS:
        return cast(Comparison, str(value))
    meant = _OTHER_COMPARISONS.get(value) if isinstance(value, str) else None
    remedy = f'Did you mean "{meant}"?' if meant else "The comparisons are = != < <= > >=."
    here.wrong(f"unknown comparison {shown(value)}", value, remedy)
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


def _is_range(bounds: list[tuple[Comparison, Number]], value: Any, here: Location) -> bool:
    (lower_sign, lower), (upper_sign, upper) = bounds
    if lower_sign not in (">", ">=") or upper_sign not in ("<", "<="):
        remedy = 'A range is a lower bound (> or >=), then an upper one (< or <=), as in [">=", 0, "<", 10].'
        here.wrong(f"{shown(value)} is not a range", value, remedy)
        return False
    if lower > upper or (lower == upper and (lower_sign, upper_sign) != (">=", "<=")):
        here.wrong(f"no number is in {shown(value)}", value, "The lower bound must lie below the upper one.")
        return False
    return True
