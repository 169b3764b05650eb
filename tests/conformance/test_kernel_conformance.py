"""Every conformance case against the kernel: each pattern alone, and all patterns of all files as one rule set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conformance.test_conformance import matching_files, read_cases

from eventbridge.event.json_document import parse_document, write_document
from eventbridge.matching import Matches, compile_rules
from eventbridge.matching.pattern import Pattern, parse_pattern
from eventbridge.matching.reference import flatten, matches_leaves


def text_of(test: dict[str, Any]) -> bytes:
    """Return the event of a case as it would arrive; half a surrogate pair outside an escape is not UTF-8."""
    text: str = test.get("event_text", write_document(test.get("event")))
    return text.encode("utf-8", "surrogatepass")


def results(found: Matches) -> list[list[int] | None]:
    """Return the rules that each event matches, ascending; None for a malformed event."""
    malformed = set(found.malformed.tolist())
    return [
        None if event in malformed else sorted(found.rules[found.offsets[event] : found.offsets[event + 1]].tolist())
        for event in range(len(found.offsets) - 1)
    ]


@pytest.mark.parametrize("file", matching_files(), ids=lambda file: file.stem)
def test_kernel_gives_the_results_of_the_cases(file: Path) -> None:
    """Compiled alone, each pattern gives the results of its cases and refuses what is malformed."""
    for group in read_cases(file.stem):
        matcher = compile_rules([parse_pattern(group["pattern"])])
        expected = [None if test.get("error") else [0] if test["matches"] else [] for test in group["tests"]]

        assert results(matcher.match(pa.array(map(text_of, group["tests"])))) == expected, group["description"]


def all_patterns_and_texts() -> tuple[list[Pattern], list[bytes]]:
    """Return the patterns of all case files, and the events of all their cases."""
    groups = [group for file in matching_files() for group in read_cases(file.stem)]
    patterns = [parse_pattern(group["pattern"]) for group in groups]
    return patterns, [text_of(test) for group in groups for test in group["tests"]]


def results_of_cases() -> list[tuple[int, bool | None]]:
    """Return per event of `all_patterns_and_texts` its own pattern and whether that matches; None: it is malformed."""
    groups = [group for file in matching_files() for group in read_cases(file.stem)]
    return [
        (rule, None if test.get("error") else test["matches"])
        for rule, group in enumerate(groups)
        for test in group["tests"]
    ]


def results_of_reference(patterns: list[Pattern], texts: list[bytes]) -> list[list[int] | None]:
    """Return what `results` does, as the reference matcher says; an event that no case calls malformed is parsed."""
    expected: list[list[int] | None] = []
    for text, (_, matches) in zip(texts, results_of_cases(), strict=True):
        leaves = None if matches is None else flatten(parse_document(text))
        expected.append(
            None
            if leaves is None
            else [rule for rule, pattern in enumerate(patterns) if matches_leaves(pattern, leaves)]
        )
    return expected


def test_kernel_agrees_with_the_reference_with_all_rules_at_once() -> None:
    """The matches of a rule do not depend on other rules: all patterns on the events of all cases."""
    patterns, texts = all_patterns_and_texts()

    assert results(compile_rules(patterns).match(pa.array(texts))) == results_of_reference(patterns, texts)
