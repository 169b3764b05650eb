"""docs/reference/patterns.md is executed: its examples match what they say, its messages are the parser's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventbridge.event.json_document import parse_document
from eventbridge.matching.pattern import find_errors, rule_pattern_errors
from eventbridge.matching.reference import matches

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "patterns.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```json\n(.*)\n```\n\n((?:- .*\n)+)", PAGE)
EVENT = re.compile(r"- (matches|does not match) `(.*)`")
MESSAGES = re.findall(r"^\| `(\{.*?\})` \| `(\$.*)` \|$", PAGE, re.M)


@pytest.mark.parametrize(("pattern", "lines"), EXAMPLES, ids=[pattern for pattern, _ in EXAMPLES])
def test_example_matches_as_the_page_says(pattern: str, lines: str) -> None:
    """Each event below an example matches it, or does not, as the page says."""
    listed = lines.splitlines()
    events = [EVENT.fullmatch(line) for line in listed]

    assert [line for line, event in zip(listed, events, strict=True) if event is None] == []
    for event in events:
        assert event is not None
        assert matches(pattern, event[2]) == (event[1] == "matches"), event[0]


def test_every_pattern_of_the_page_is_an_example() -> None:
    """No JSON on the page stands without events that show what it means."""
    assert PAGE.count("```json\n") == len(EXAMPLES) > 30
    assert len(re.findall("^- ", PAGE, re.M)) == sum(lines.count("\n") for _, lines in EXAMPLES)


@pytest.mark.parametrize(("pattern", "message"), MESSAGES)
def test_error_has_the_message_on_the_page(pattern: str, message: str) -> None:
    """A rule with this pattern gets the message in the table, and no other."""
    errors = rule_pattern_errors(parse_document(pattern))

    assert [str(error) for error in errors] == [message]


def test_every_row_of_the_table_of_errors_is_checked() -> None:
    """The rows between the heading and the end are all read."""
    assert PAGE.split("## Errors")[1].count("\n| `") == len(MESSAGES) > 15


def test_a_key_twice_is_an_error_in_json_text() -> None:
    """As the last sentence of the page says."""
    assert [error.path for error in find_errors('{"type": ["a"], "type": ["b"]}')] == ["$.type"]
