"""The matcher decides array consistency correctly on many small patterns and events without other content.

Hypothesis takes a millisecond per example and the matcher microseconds, and a missing leaf decides most of its
examples. Here a seeded generator draws only zeros, ones, gaps and arrays, so that most results depend on the choice of
elements. The environment variable `ARRAY_EXAMPLES` sets their number.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

from generative import brute_force

from eventbridge.event.json_document import Number
from eventbridge.matching.reference import matches

EXAMPLES = int(os.environ.get("ARRAY_EXAMPLES", "3000"))
ZERO, ONE = Number("0"), Number("1")
LEAF_LISTS = (
    [ONE],
    [ONE],
    [ONE],
    [ONE],
    [ONE],
    [ZERO],
    [{"exists": True}],
    [{"exists": False}],
    [{"exists": False}],
    [ONE, {"exists": False}],
)


def draw_pattern(draw: random.Random, depth: int, ors: float) -> dict[str, Any]:
    """Draw a sub-pattern over few keys; `ors` is the probability that an object has a `$or`."""
    pattern: dict[str, Any] = {}
    for key in draw.sample("abc", draw.choice((1, 2, 2, 3) if depth < 2 else (1, 2))):
        below = depth == 2 or (depth == 1 and draw.random() < 0.3)
        pattern[key] = draw_pattern(draw, depth - 1, ors) if below else draw.choice(LEAF_LISTS)
    if draw.random() < ors:
        pattern["$or"] = [draw_pattern(draw, max(depth - 1, 0), ors / 3) for _ in range(2)]
    return pattern


def draw_value(draw: random.Random, depth: int) -> Any:
    """Draw a scalar, an object, or an array, whose elements may also be arrays and scalars."""
    kind = draw.random()
    if depth == 0 or kind < 0.2:
        return draw.choice((ZERO, ONE, ONE, ONE, ONE))
    if kind < 0.6:
        return {key: draw_value(draw, depth - 1) for key in draw.sample("abc", draw.choice((1, 2, 3)))}
    return [draw_value(draw, depth - draw.choice((0, 1))) for _ in range(draw.choice((1, 2, 2, 3)))]


def draw_event(draw: random.Random, pattern: dict[str, Any], gaps: float = 0.05) -> dict[str, Any]:
    """Draw an event whose objects mostly have the pattern's keys; `gaps` is the probability that a key is missing."""
    event: dict[str, Any] = {}
    for key in {**pattern, **draw.choice(pattern.get("$or", [{}]))}:
        below = pattern.get(key)
        absent = below == [{"exists": False}]
        if key == "$or" or draw.random() < (0.6 if absent else gaps):
            continue
        if not isinstance(below, dict) or draw.random() < 0.05:
            event[key] = draw_value(draw, draw.choice((0, 0, 0, 0, 1, 2)))
        elif draw.random() < 0.2:
            event[key] = draw_event(draw, below, gaps)
        else:
            elements: list[Any] = [draw_event(draw, below, 0.5) for _ in range(draw.choice((1, 2, 3, 4)))]
            event[key] = [[element] if draw.random() < 0.15 else element for element in elements]
    return event


def pairs(draw: random.Random, count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield patterns and events with so few choices of leaves that all of them can be tried."""
    while count:
        pattern = draw_pattern(draw, depth=2, ors=0.3)
        event = draw_event(draw, pattern)
        if brute_force.choices(pattern, event) <= 500:
            count -= 1
            yield pattern, event


def test_reference_matcher_agrees_with_the_definition_on_arrays() -> None:
    """The matcher agrees with trying every choice of leaves, in arrays of arrays with `$or` and missing leaves."""
    draw = random.Random(20131)
    matched = 0
    for pattern, event in pairs(draw, EXAMPLES):
        expected = brute_force.matches(pattern, event)
        matched += expected

        assert matches(pattern, event) == expected, (pattern, event)
    assert EXAMPLES / 10 < matched < EXAMPLES / 2, "nearly all or nearly none of the examples match"
