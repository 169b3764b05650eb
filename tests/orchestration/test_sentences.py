"""The sentences that tasks log about deliveries, and the note of a run."""

from __future__ import annotations

import pytest

from eventbridge.airflow.airflow_api import noted
from eventbridge.airflow.sentences import Failures, TargetLine, sentence_about, short


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            TargetLine("crew-duty/crew", 3, dead=Failures(3, "HTTP 503", ("E1", "E2", "E3"))),
            "crew-duty/crew: 3 of 3 dead-lettered, HTTP 503; events E1, E2, E3",
        ),
        (
            TargetLine("crew-duty/crew", 1_200, dead=Failures(1_200, "HTTP 503", ("E1", "E2", "E3", "E4"))),
            "crew-duty/crew: 1,200 of 1,200 dead-lettered, HTTP 503; events E1, E2, E3, ...",
        ),
        (
            TargetLine(
                "a/b", 5, 2, dead=Failures(1, "HTTP 400", ("E1",)), waiting=Failures(2, "timeout", ("E2", "E3"))
            ),
            "a/b: 2 of 5 delivered; 1 of 5 dead-lettered, HTTP 400; event E1; "
            "2 of 5 to be tried again, timeout; events E2, E3",
        ),
        (TargetLine("a/b", 4, 4), "a/b: 4 of 4 delivered"),
        (TargetLine("a/b", 4, 1), "a/b: 1 of 4 delivered; 3 of 4 not sent"),
        (TargetLine("a/b", 4, dead=Failures(4)), "a/b: 4 of 4 dead-lettered"),
    ],
)
def test_a_target_is_one_sentence(line: TargetLine, sentence: str) -> None:
    """It has the numbers of delivered, dead-lettered and pending deliveries, reasons and events, without empty
    parts.
    """
    assert str(line) == sentence


def test_targets_with_failures_come_first_and_the_rest_is_counted() -> None:
    """Only five of two hundred targets are named."""
    lines = [TargetLine(f"rule/{number:03}", 10, 10) for number in range(200)]
    lines[7] = TargetLine("rule/007", 10, 9, dead=Failures(1, "HTTP 503", ("E1",)))
    lines += [TargetLine(f"late/{number}", 10, 8, waiting=Failures(2)) for number in range(9)]

    sentence = sentence_about(lines)

    assert sentence.startswith(
        "rule/007: 9 of 10 delivered; 1 of 10 dead-lettered, HTTP 503; event E1. late/0: 8 of 10"
    )
    assert sentence.endswith(". 204 more targets: 2,030 of 2,040 delivered, 10 to be tried again")


def test_text_from_outside_cannot_lengthen_or_break_a_sentence() -> None:
    """Event ids and names may have any length and contain any character."""
    lines = [
        TargetLine(
            f"{number}{'t' * 1_000}/x", 10, dead=Failures(10, "w" * 5_000, tuple("e\n" * 900 for _ in range(10)))
        )
        for number in range(50)
    ]

    assert len(sentence_about(lines)) < 2_500
    assert short("a\nb\x1b[31m") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[31m"
    assert short("x" * 81) == "x" * 77 + "..."


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("", "EventBridge: 3 dead-lettered"),
        ("Asked for by Ann", "Asked for by Ann\nEventBridge: 3 dead-lettered"),
        ("EventBridge: 2 dead-lettered", "EventBridge: 3 dead-lettered"),
        ("Ann\nEventBridge: 2 dead-lettered\nBob", "Ann\nBob\nEventBridge: 3 dead-lettered"),
        ("x" * 999, "x" * 999),
    ],
)
def test_a_note_keeps_what_a_person_wrote(note: str, expected: str) -> None:
    """EventBridge's line is the last one and replaces its earlier line; it is left out if the note is full."""
    assert noted(note, "3 dead-lettered") == expected


def test_a_note_fits_into_airflow() -> None:
    """A note has at most 1,000 characters."""
    found = noted("Ann", "x" * 2_000)

    assert len(found) == 1_000
    assert found.endswith("...")
