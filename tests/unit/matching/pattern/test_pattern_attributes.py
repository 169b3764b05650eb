"""What the pattern of a rule may name at its top."""

from __future__ import annotations

from typing import Any

import pytest

from eventbridge.matching.pattern import find_errors, rule_pattern_errors


def test_attributes_extensions_and_data_are_no_error() -> None:
    """Every attribute of CloudEvents 1.0, any extension's name, and anything inside data."""
    pattern = {
        **{name: ["x"] for name in ("id", "source", "specversion", "type", "subject", "time", "datacontenttype")},
        **{name: ["x"] for name in ("dataschema", "traceparent", "myextension2")},
        "data": {"Any-Key": {"$id": [1]}, "data_base64": ["x"]},
        "$or": [{"type": ["a"]}, {"data": {"B": [1]}}],
        "$not": {"subject": ["x"], "data": {"C": [1]}},
    }

    assert rule_pattern_errors(pattern) == []


def test_data_may_be_a_scalar() -> None:
    """The data of an event may be any JSON, so a leaf list may stand at it."""
    assert rule_pattern_errors({"data": [1, {"exists": False}]}) == []


@pytest.mark.parametrize(
    ("pattern", "path", "meant"),
    [
        ({"Type": ["a"]}, "$.Type", "type"),
        ({"event-type": ["a"]}, "$.event-type", "data"),
        ({"detail-type": ["a"]}, "$.detail-type", "type"),
        ({"spec_version": ["1.0"]}, "$.spec_version", "specversion"),
        ({"detail": {"a": [1]}}, "$.detail", "data"),
        ({"dta": {"a": [1]}}, "$.dta", "data"),
        ({"subject": {"a": [1]}}, "$.subject", "data"),
        ({"data_base64": ["x"]}, "$.data_base64", "type, source or subject"),
        ({"customer.id": ["x"]}, "$['customer.id']", "data"),
        ({"$or": [{"Type": ["a"]}, {"type": ["b"]}]}, "$.$or[0].Type", "type"),
        ({"$or": [{"$or": [{"id": ["a"]}, {"ID": ["b"]}]}, {"type": ["b"]}]}, "$.$or[0].$or[1].ID", "id"),
        ({"$not": {"Source": ["a"]}}, "$.$not.Source", "source"),
    ],
)
def test_an_attribute_that_no_cloudevent_has_is_an_error(pattern: dict[str, Any], path: str, meant: str) -> None:
    """The key is named, with what was likely meant; the language itself has nothing against it."""
    (error,) = rule_pattern_errors(pattern)

    assert find_errors(pattern) == []
    assert error.path == path
    assert meant in error.remedy


def test_errors_of_both_kinds_are_reported_together() -> None:
    """A user corrects a file once."""
    errors = rule_pattern_errors({"Type": "a", "data": {"x": []}})

    assert sorted(error.path for error in errors) == ["$.Type", "$.Type", "$.data.x"]


def test_a_pattern_that_is_no_object_is_one_error() -> None:
    """A list for a pattern is reported once."""
    assert [error.path for error in rule_pattern_errors(["a"])] == ["$"]  # type: ignore[arg-type]
