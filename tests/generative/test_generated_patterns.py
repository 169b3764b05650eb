"""The pattern language obeys its laws on generated patterns and events."""

from __future__ import annotations

from typing import Any

import pytest
from generative import brute_force
from generative.event_strategies import events, events_near, values
from generative.pattern_strategies import objects, patterns
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbridge.errors import PatternError
from eventbridge.event.json_document import parse_document, write_document
from eventbridge.matching.pattern import find_errors, parse_pattern, rule_pattern_errors, write_pattern
from eventbridge.matching.reference import explain, flatten, matches, matches_leaves

pairs = patterns().flatmap(lambda pattern: st.tuples(st.just(pattern), st.one_of(events, *[events_near(pattern)] * 3)))


def reordered(value: Any, reverse: bool = True) -> Any:
    """Return a value with the keys of all its objects in another order; the order of lists stays."""
    if isinstance(value, dict):
        return {key: reordered(inner) for key, inner in sorted(value.items(), reverse=reverse)}
    return [reordered(inner) for inner in value] if isinstance(value, list) else value


@given(pairs)
@settings(max_examples=settings().max_examples * 2)
def test_reference_matcher_agrees_with_the_definition(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """The matcher agrees with trying every choice of leaves."""
    pattern, event = pair

    assert matches(pattern, write_document(event)) == brute_force.matches(pattern, event)


@given(pairs)
def test_order_of_keys_never_matters(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Neither the order of a pattern's keys nor that of an event's changes the result."""
    pattern, event = pair
    expected = matches(pattern, event)

    assert matches(reordered(pattern), event) == expected
    assert matches(pattern, reordered(event)) == expected


@given(st.lists(patterns(), min_size=2, max_size=4), events)
def test_other_rules_never_matter(several: list[dict[str, Any]], event: dict[str, Any]) -> None:
    """Patterns that are matched together, in any order, have the same results as separately."""
    parsed, leaves = [parse_pattern(pattern) for pattern in several], flatten(event)
    alone = [matches(pattern, event) for pattern in several]

    assert [matches_leaves(pattern, leaves) for pattern in parsed] == alone
    assert [matches_leaves(pattern, leaves) for pattern in reversed(parsed)] == alone[::-1]


@given(objects(), events)
def test_not_is_the_opposite(pattern: dict[str, Any], event: dict[str, Any]) -> None:
    """`$not` of a pattern matches exactly the events that the pattern does not match."""
    assert matches({"$not": pattern}, event) != matches(pattern, event)


@given(objects(), objects(), st.data())
def test_or_is_either(one: dict[str, Any], other: dict[str, Any], data: st.DataObject) -> None:
    """`$or` of two patterns matches exactly the events that at least one of them matches, in either order."""
    event = data.draw(st.one_of(events, events_near(one)))
    expected = matches(one, event) or matches(other, event)

    assert matches({"$or": [one, other]}, event) == expected
    assert matches({"$or": [other, one]}, event) == expected


@given(objects(), st.data())
def test_or_of_a_pattern_with_itself_is_that_pattern(pattern: dict[str, Any], data: st.DataObject) -> None:
    """`$or` of a pattern with itself matches the same events as the pattern."""
    event = data.draw(events_near(pattern))

    assert matches({"$or": [pattern, pattern]}, event) == matches(pattern, event)


@given(pairs)
def test_explanation_is_empty_just_for_a_match(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """`explain` finds a failed condition when and only when the event does not match."""
    pattern, event = pair

    assert (explain(parse_pattern(pattern), event) == []) == matches(pattern, event)


@given(patterns())
def test_pattern_survives_being_written(pattern: dict[str, Any]) -> None:
    """Parsing what the printer wrote gives the same pattern, and the text it was parsed from too."""
    parsed = parse_pattern(pattern)

    assert parse_pattern(write_pattern(parsed)) == parsed
    assert parse_pattern(write_document(pattern)) == parsed
    assert hash(parse_pattern(write_document(pattern))) == hash(parsed)


@given(st.one_of(values, patterns().map(lambda pattern: {"a": pattern}), st.dictionaries(st.text(max_size=3), values)))
def test_any_json_is_a_pattern_or_has_errors(value: Any) -> None:
    """For any input, the parser returns a pattern or names errors; it never fails otherwise."""
    text = write_document(value)
    errors = find_errors(text)
    if errors:
        with pytest.raises(PatternError):
            parse_pattern(text)
    else:
        assert find_errors(write_pattern(parse_pattern(text))) == []
        assert all(error.remedy for error in rule_pattern_errors(parse_document(text)))


@given(patterns(), st.data())
def test_a_damaged_pattern_is_a_pattern_or_has_errors(pattern: dict[str, Any], data: st.DataObject) -> None:
    """A pattern with one part replaced is parsed or rejected with a path, and never crashes the parser."""
    damaged = data.draw(damage(pattern))
    errors = find_errors(damaged)

    assert all(error.path.startswith("$") and error.message and error.remedy for error in errors)
    assert bool(errors) or matches(damaged, {}) in (True, False)


@st.composite
def damage(draw: st.DrawFn, value: Any) -> Any:
    """Draw a copy of a value with one part of it replaced."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: draw(damage(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(damage(value[index])), *value[index + 1 :]]
    return draw(st.one_of(values, st.just([]), st.just({}), st.just({"prefx": "a"}), st.just([{"exists": False}])))
