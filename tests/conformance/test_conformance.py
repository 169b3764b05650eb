"""Every conformance case against the reference matcher: the cases are the definition of the pattern language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventbridge.errors import EventError, PatternError
from eventbridge.event.json_document import parse_document, write_document
from eventbridge.matching.pattern import find_errors, parse_pattern, write_pattern
from eventbridge.matching.reference import explain, matches

CASES = Path(__file__).parent / "cases"
INVALID = "invalid_patterns"


def read_cases(name: str) -> list[Any]:
    """Return the groups of a case file, numbers as they are written."""
    groups = parse_document('{"groups":' + (CASES / f"{name}.json").read_text(encoding="utf-8") + "}")["groups"]
    assert isinstance(groups, list)
    return groups


def matching_files() -> list[Path]:
    """Return the case files of patterns that are in the language."""
    return [file for file in sorted(CASES.glob("*.json")) if file.stem != INVALID]


def matching_cases() -> list[Any]:
    """Return (pattern, test) of those files, named by their descriptions."""
    return [
        pytest.param(group["pattern"], test, id=f"{file.stem}: {group['description']}: {test['description']}")
        for file in matching_files()
        for group in read_cases(file.stem)
        for test in group["tests"]
    ]


@pytest.mark.parametrize(("pattern", "test"), matching_cases())
def test_reference_matcher_gives_the_result_of_the_case(pattern: Any, test: Any) -> None:
    """The result equals the case's, for text and for the document, and `explain` finds a reason only for a mismatch."""
    parsed = parse_pattern(pattern)
    text = test.get("event_text", write_document(test.get("event")))
    if test.get("error"):
        with pytest.raises(EventError):
            matches(parsed, text)
        return

    assert matches(parsed, text) == test["matches"]
    assert matches(parsed, parse_document(text)) == test["matches"]
    assert matches(parsed, text.encode("utf-8")) == test["matches"]
    assert (explain(parsed, parse_document(text)) == []) == test["matches"]


def test_patterns_survive_being_written() -> None:
    """Parsing the printed pattern of each case gives an equal pattern."""
    patterns = [parse_pattern(group["pattern"]) for file in matching_files() for group in read_cases(file.stem)]

    assert [parse_pattern(write_document(write_pattern(pattern))) for pattern in patterns] == patterns


@pytest.mark.parametrize(
    "test",
    [
        pytest.param(test, id=f"{group['description']}: {test['description']}")
        for group in read_cases(INVALID)
        for test in group["tests"]
    ],
)
def test_errors_of_a_pattern_are_found_where_they_are(test: Any) -> None:
    """Every error is found at its path with message and remedy, and parsing raises the first of them."""
    source = test.get("pattern_text", write_document(test.get("pattern")))
    errors = find_errors(source)

    assert [error.path for error in errors] == test["paths"]
    assert all(error.message and error.remedy for error in errors)
    with pytest.raises(PatternError) as raised:
        parse_pattern(source)
    assert str(raised.value) == str(errors[0])
