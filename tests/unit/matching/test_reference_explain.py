"""`explain` names the conditions that an event does not meet, with what it saw."""

from __future__ import annotations

from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import UnmetCondition, explain


def findings(pattern: str, event: str) -> list[UnmetCondition]:
    """Return what `explain` finds for two texts."""
    return explain(parse_pattern(pattern), parse_document(event))


def test_every_condition_that_fails_is_found() -> None:
    """Each with path, condition and the values seen, those that are met not."""
    pattern = '{"type": ["a"], "data": {"n": [{"numeric": [">", 5]}], "m": [1], "gone": [true, {"exists": true}]}}'

    assert findings(pattern, '{"type": "b", "data": {"n": [1.50, "x"], "m": 1}}') == [
        UnmetCondition("$.type", '["a"]', ('"b"',), '"b" does not meet ["a"]'),
        UnmetCondition(
            "$.data.n",
            '[{"numeric":[">",5]}]',
            ("1.50", '"x"'),
            '1.50, "x" do not meet [{"numeric":[">",5]}]',
        ),
        UnmetCondition(
            "$.data.gone", '[true,{"exists":true}]', (), 'there is no value; [true,{"exists":true}] is required'
        ),
    ]


def test_a_match_has_no_finding() -> None:
    """Nothing failed."""
    assert findings('{"a": [1], "$not": {"b": [1]}}', '{"a": 1}') == []


def test_an_object_where_a_value_is_wanted_is_said() -> None:
    """The usual error of a level too few."""
    (finding,) = findings('{"data": [1]}', '{"data": {"a": 1}}')

    assert str(finding) == "$.data: there is an object instead of a value; [1] is required"


def test_long_lists_of_values_are_cut() -> None:
    """Five values are shown, and each not longer than a line."""
    (finding,) = findings('{"a": ["x"]}', '{"a": ["' + "y" * 200 + '", 1, 2, 3, 4, 5, 6]}')

    assert finding.message == f'"{"y" * 76}..., 1, 2, 3, 4 and 2 more do not meet ["x"]'
    assert len(finding.values) == 7


def test_conditions_that_are_met_in_different_elements_are_said_to_be() -> None:
    """Each for itself is met, together they are not."""
    (finding,) = findings('{"a": {"x": [1], "y": [2]}}', '{"a": [{"x": 1}, {"y": 2}]}')

    assert finding.path == "$"
    assert finding.message == (
        'each condition can be met, but not all in the same elements of arrays: {"a":{"x":[1],"y":[2]}}'
    )


def test_no_alternative_is_explained_with_each() -> None:
    """`$or` fails as a whole, and so does something in every alternative."""
    found = findings('{"data": {"$or": [{"a": [1]}, {"b": [2], "c": [3]}]}}', '{"data": {"a": 0, "b": 2}}')

    assert [(finding.path, finding.values) for finding in found] == [
        ("$.data", ()),
        ("$.data.a", ("0",)),
        ("$.data.c", ()),
    ]
    assert found[0].condition == '{"$or":[{"a":[1]},{"b":[2],"c":[3]}]}'


def test_the_pattern_under_not_is_named() -> None:
    """The whole sub-pattern is named."""
    (finding,) = findings('{"a": [1], "$not": {"b": [2]}}', '{"a": 1, "b": 2}')

    assert finding.message == 'the event matches what $not excludes: {"$not":{"b":[2]}}'


def test_a_value_that_should_not_be_there_is_shown() -> None:
    """`exists: false` fails on the values it sees."""
    (finding,) = findings('{"a": [{"exists": false}]}', '{"a": null}')

    assert finding.message == 'null does not meet [{"exists":false}]'
