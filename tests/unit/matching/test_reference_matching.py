"""The matcher's own ways of being called; what it responds with is in tests/conformance."""

from __future__ import annotations

import gc

import pytest

from eventbridge.errors import EventError, PatternError
from eventbridge.event.json_document import Number
from eventbridge.matching import compiled
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import flatten, matches, matches_leaves


def test_patterns_and_events_are_taken_in_every_form() -> None:
    """Text, bytes and mappings mean the same."""
    patterns = [parse_pattern('{"a": [1]}'), '{"a": [1]}', b'{"a": [1]}', {"a": [1]}]
    events = ['{"a": 1.0}', b'{"a": 1.0}', {"a": 1.0}, {"a": Number("1.0")}, {"a": (1,)}]

    assert all(matches(pattern, event) for pattern in patterns for event in events)


@pytest.mark.parametrize("event", ["[]", b"\xff", '{"a": NaN}', {1: 2}, {"a": float("nan")}])
def test_an_invalid_document_raises_an_error_of_events(event: str | bytes | dict[object, object]) -> None:
    """Whatever the pattern."""
    with pytest.raises(EventError):
        matches({}, event)


def test_an_invalid_pattern_raises_an_error_of_patterns() -> None:
    """Before the event is read."""
    with pytest.raises(PatternError):
        matches({"a": 1}, "no event")


def test_leaves_are_scalars_with_paths_and_places() -> None:
    """Arrays are numbered in order of their first container; plain scalars lie in no element."""
    leaves = flatten({"a": [Number("1"), {"b": None}, [True]], "c": {"d": ["x", "y"]}, "e": [{}], "f": []})

    assert leaves.nested
    assert leaves.by_path == {
        ("a",): [(Number("1"), ()), (True, ((0, 2),))],
        ("a", "b"): [(None, ((0, 1),))],
        ("c", "d"): [("x", ()), ("y", ())],
    }


def test_an_event_without_containers_in_arrays_is_flat() -> None:
    """Arrays of scalars need no consistency."""
    assert not flatten({"a": ["x", "y"], "b": {"c": []}}).nested


def test_a_pattern_is_compiled_once_and_forgotten_with_it() -> None:
    """Equal patterns share the compiled form; nothing stays when they are deleted."""
    gc.collect()
    before = len(compiled._compiled_patterns)
    one, other = parse_pattern({"once": ["upon"]}), parse_pattern({"once": ["upon"]})
    leaves = flatten({"once": "upon"})

    assert matches_leaves(one, leaves)
    assert matches_leaves(other, leaves)
    assert len(compiled._compiled_patterns) == before + 1
    del one, other
    gc.collect()
    assert len(compiled._compiled_patterns) == before
