"""What `rules check` warns of in a pattern that is right by the language and matches less than it seems to."""

from __future__ import annotations

import pytest

from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern import parse_pattern, pattern_warnings


def warnings(pattern: str) -> list[str]:
    """Return the warnings of a pattern that is written as JSON."""
    return pattern_warnings(parse_pattern(parse_document(pattern)))


@pytest.mark.parametrize(
    ("pattern", "name", "condition", "why"),
    [
        ('{"specversion": [1.0]}', "specversion", "1.0", 'specversion is text. Write it in quotes: "1.0"'),
        ('{"type": [true]}', "type", "true", 'type is text. Write it in quotes: "true"'),
        ('{"specversion": ["0.3"]}', "specversion", '"0.3"', 'specversion is always "1.0"'),
        ('{"time": [{"numeric": [">", 5]}]}', "time", '{"numeric":[">",5]}', "time is text, never a number"),
        ('{"subject": [""]}', "subject", '""', 'subject is never empty. An event without it meets {"exists": false}'),
        ('{"id": [""]}', "id", '""', "id is never empty"),
        ('{"source": [null]}', "source", "null", "every event has source"),
        ('{"type": [{"exists": false}]}', "type", '{"exists":false}', "every event has type"),
        ('{"$or": [{"type": ["a"]}, {"time": [5]}]}', "time", "5", 'time is text. Write it in quotes: "5"'),
        ('{"$not": {"id": [7]}}', "id", "7", 'id is text. Write it in quotes: "7"'),
        ('{"id": [{"all": [{"prefix": "2"}, 5]}]}', "id", '{"all":[{"prefix":"2"},5]}', 'id is text. Write it in quotes: "5"'),  # noqa: E501
    ],
)  # fmt: skip
def test_a_condition_that_no_event_meets_is_named(pattern: str, name: str, condition: str, why: str) -> None:
    """The warning names the condition, why nothing meets it, and what to write."""
    assert warnings(pattern) == [f"$.pattern.{name}: {condition} matches no event: {why}"]


@pytest.mark.parametrize("name", ["account", "region", "resources", "version"])
def test_fields_of_another_envelope_are_named(name: str) -> None:
    """What Amazon EventBridge puts around its events is no attribute of a CloudEvent."""
    [warning] = warnings(f'{{"{name}": ["x"]}}')

    assert f"$.pattern.{name}: {name} is a field of Amazon EventBridge's events, not an attribute" in warning


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ('{"fleet": [7]}', 'Write [7, "7"] for both modes'),
        ('{"urgent": [true]}', 'Write [true, "true"] for both modes'),
        ('{"fleet": [{"numeric": [">", 5]}]}', "Publish such events in structured mode"),
    ],
)
def test_a_number_of_an_extension_depends_on_the_mode(pattern: str, said: str) -> None:
    """In binary mode an extension is text, which no number equals."""
    [warning] = warnings(pattern)

    assert "matches no event that arrives in binary mode: its extensions are text" in warning
    assert said in warning


@pytest.mark.parametrize(
    "pattern",
    [
        "{}",
        '{"fleet": [7, "7"]}',
        '{"fleet": ["7"], "data": {"account": [1], "time": [{"numeric": [">", 5]}], "": [""]}}',
        '{"subject": [null, {"exists": false}, {"prefix": "a"}], "specversion": ["1.0"]}',
        '{"data": [5]}',
        '{"type": [{"anything-but": [5]}]}',
    ],
)
def test_a_condition_that_events_can_meet_is_not_named(pattern: str) -> None:
    """Parts of the data may be of any type, and an optional attribute may be absent."""
    assert warnings(pattern) == []
