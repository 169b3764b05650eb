"""No pattern or event takes the matcher more than it should: what looks exponential or quadratic is neither."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from eventbridge.event.json_document import Number, as_document
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import flatten, matches, matches_leaves

ONE = Number("1")
EITHER = {"$or": [{"x": [1]}, {"y": [1]}]}
BOTH = {"x": ONE, "y": ONE}
MANY = 40
WIDE = 30_000

HARD = {
    "independent $or and one absence that fails": (
        {**{f"k{i}": EITHER for i in range(MANY)}, "a": {"b": [{"exists": False}]}},
        {**{f"k{i}": [BOTH, BOTH] for i in range(MANY)}, "a": [{"b": ONE}]},
    ),
    "$or in one element and one absence that fails": (
        {"a": {**{f"k{i}": EITHER for i in range(MANY)}, "b": [{"exists": False}]}},
        {"a": [{**{f"k{i}": [BOTH] for i in range(MANY)}, "b": ONE}] * 2},
    ),
    "$or that each element but one meets": (
        {"a": {f"k{i}": EITHER for i in range(MANY)}},
        {"a": [{f"k{i}": [BOTH] for i in range(MANY) if i != j} for j in range(MANY)]},
    ),
    "a value or none, and never all": (
        {"a": {f"k{i}": [5, {"exists": False}] for i in range(MANY)}},
        {"a": [{f"k{i}": ONE for i in range(MANY) if i != j} for j in range(MANY)]},
    ),
    "independent arrays, the last of which fails": (
        {f"k{i}": {"x": [1], "y": [1]} for i in range(MANY)},
        {**{f"k{i}": [BOTH] * 10 for i in range(MANY - 1)}, f"k{MANY - 1}": [{"x": ONE}, {"y": ONE}]},
    ),
    "a wide array without a common element": (
        {"a": {"x": [1], "y": [1]}},
        {"a": [{"x": ONE}, {"y": ONE}] * (WIDE // 2)},
    ),
    "a wide array in which every element has what should be absent": (
        {"a": {"x": [1], "y": [{"exists": False}]}},
        {"a": [BOTH] * WIDE},
    ),
    "a wide array and alternatives": (
        {"a": {"$or": [{"x": [1], "y": [1]}, {"x": [1], "z": [1]}]}},
        {"a": [{"x": ONE}, {"y": ONE}, {"z": ONE}] * (WIDE // 3)},
    ),
    "a wide array of scalars and arrays": (
        {"a": [1], "$or": [{"a": {"y": [{"exists": False}]}}, {"q": [1]}]},
        {"a": [ONE, {"y": ONE}, [ONE, {"y": ONE}]] * (WIDE // 3)},
    ),
}


@pytest.mark.timeout(120)  # without the guarded bound it would never end
@pytest.mark.parametrize("name", HARD)
def test_hard_patterns_take_no_time(name: str) -> None:
    """A second of CPU is a hundred times what they take, and nothing to what trying all choices would."""
    pattern, event = HARD[name]
    parsed, leaves = parse_pattern(pattern), flatten(as_document(event))
    started = time.process_time()

    assert not matches_leaves(parsed, leaves)
    assert time.process_time() - started < 5


def test_deepest_event_fits_a_stack_that_is_half_used() -> None:
    """128 levels of arrays and objects are matched with 500 frames to spare."""
    event: Any = [{"x": ONE}, {"y": ONE}]
    for _ in range(126):
        event = [event, {"x": ONE}]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(600)
    try:
        results = [
            matches({"a": {"x": [1], "y": [condition]}}, {"a": event[0]}) for condition in (1, {"exists": False})
        ]
    finally:
        sys.setrecursionlimit(limit)

    assert results == [False, True]


def test_a_regular_expression_takes_linear_time() -> None:
    """What hangs a backtracking engine for ever gets a response at once."""
    pattern = parse_pattern({"a": [{"regex": "(x+x+)+y"}, {"wildcard": "*x" * 20 + "y"}]})
    leaves = flatten({"a": "x" * 20_000})
    started = time.process_time()

    assert not matches_leaves(pattern, leaves)
    assert time.process_time() - started < 2


def test_one_rule_on_one_event_takes_microseconds() -> None:
    """A rule of three fields on a flat event: 60,000 events times 12 rules are to be routed in seconds."""
    pattern = parse_pattern(
        '{"source": [{"suffix": "/EWR"}], "data": {"dest": ["LAX", "SFO"], "distance": [{"numeric": [">=", 1000]}]}}'
    )
    data = {f"column{number}": number for number in range(20)}
    leaves = flatten(as_document({"source": "/airports/EWR", "data": {**data, "dest": "SFO", "distance": 2565}}))
    started = time.process_time()
    for _ in range(2_000):
        assert matches_leaves(pattern, leaves)

    assert (time.process_time() - started) / 2_000 < 100e-6
