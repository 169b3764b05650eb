"""Each condition of a pattern, as an event meets it or not: what `eventbridge events why` shows of a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern.parse import parse_pattern
from eventbridge.matching.reference import check_each, matches

EVENT = {
    "type": "order.placed",
    "data": {"amount": 40, "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}]},
}


def checked(pattern: dict[str, Any]) -> list[tuple[bool, str, tuple[str, ...]]]:
    """Return whether each condition is met, where, and on which values."""
    document = parse_document(json.dumps(EVENT))
    return [(each.met, each.finding.path, each.finding.values) for each in check_each(parse_pattern(pattern), document)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ({}, []),
        ({"type": ["order.placed"]}, [(True, "$.type", ('"order.placed"',))]),
        (
            {"type": ["order.placed"], "data": {"amount": [{"numeric": [">", 100]}]}},
            [(True, "$.type", ('"order.placed"',)), (False, "$.data.amount", ("40",))],
        ),
        ({"data": {"note": [{"exists": False}]}}, [(True, "$.data.note", ())]),
        ({"$or": [{"type": ["x"]}, {"type": [{"prefix": "order."}]}]}, [(True, "$.type", ('"order.placed"',))]),
        ({"$not": {"type": ["order.placed"]}}, [(False, "$", ())]),
        ({"$not": {"type": ["order.lost"]}}, [(True, "$", ())]),
        (
            {"data": {"lines": {"sku": ["a"], "count": [2]}}},
            [
                (True, "$.data.lines.sku", ('"a"', '"b"')),
                (True, "$.data.lines.count", ("1", "2")),
                (False, "$", ()),  # each is met, but not in the same element
            ],
        ),
    ],
)
def test_each_condition_is_reported_with_the_values_seen(pattern: dict[str, Any], found: list[Any]) -> None:
    """Met and unmet conditions, alternatives, exclusions, and conditions that do not go together."""
    assert checked(pattern) == found
    assert all(met for met, _, _ in found) == matches(pattern, EVENT)
