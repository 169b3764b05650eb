"""What a batch waits for: how much of that is one target's doing, and when it is waited for no longer."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from eventbridge.decision.head_of_line import Ends, Stay, is_cut_off, winds_down

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stay", "seconds"),
    [
        (Stay(beyond=3.0, tail=2.0, typical=2.0), 3.0),
        (Stay(beyond=3.0, tail=0.2, typical=0.2), 3.0),
        (Stay(beyond=3.0, tail=0.1, typical=0.09), 0.0),
        (Stay(beyond=3.0, tail=2.0, typical=0.01), 2.0),
        (Stay(beyond=1.0, tail=2.0, typical=0.01), 1.0),
        (Stay(beyond=0.49, tail=9.0, typical=2.0), 0.0),
        (Stay(beyond=9.0, tail=9.0, typical=None), 9.0),
    ],
)
def test_what_a_target_answers_for(stay: Stay, seconds: float) -> None:
    """All that the others waited if its answers are slow, else only for its last ones; a short wait is none."""
    assert stay.hold_up == seconds


@pytest.mark.parametrize(
    ("stay", "quick"),
    [
        (Stay(0.0, 0.4, 0.4), True),
        (Stay(20.0, 0.1, 0.01), True),
        (Stay(0.0, 0.4, 0.5), False),
        (Stay(0.0, 0.5, 0.01), False),
        (Stay(0.0, 0.0, None), False),
    ],
)
def test_what_is_quick(stay: Stay, quick: bool) -> None:
    """Answers and the wait for the last of them, however many there were."""
    assert stay.is_quick is quick


def test_the_others_are_done_when_half_of_them_are() -> None:
    """Of three the second that ends; nobody is never done."""
    first, second, third = (NOW + timedelta(seconds=number) for number in range(3))

    def done_at(*others: datetime | None) -> datetime | None:
        return Ends([("own", first), ("own", None), *enumerate(others)]).others_done_at("own")

    assert done_at() is None
    assert done_at(None) is None
    assert done_at(first) == first
    assert done_at(first, None) == first
    assert done_at(third, first, second) == second
    assert done_at(None, None, first) is None
    assert done_at(None, third, first) == third


def test_ones_own_end_is_none_of_the_others() -> None:
    """Whoever asks gets what a look at each of the others, one by one, would find."""
    rng = random.Random(7)
    for _ in range(500):
        ends = [
            (rng.randrange(4), None if rng.random() < 0.3 else NOW + timedelta(seconds=rng.randrange(5)))
            for _ in range(rng.randrange(12))
        ]
        for owner in range(5):
            others = [end for whose, end in ends if whose != owner]
            ended = sorted(end for end in others if end is not None)
            half = (len(others) + 1) // 2
            expected = ended[half - 1] if 0 < half <= len(ended) else None
            assert Ends(ends).others_done_at(owner) == expected


@pytest.mark.parametrize(
    ("beyond", "others", "typical", "cut"),
    [
        (2.0, 0.1, 2.0, True),
        (2.0, 0.1, None, True),
        (1.9, 0.1, 2.0, False),
        (4.9, 5.0, 2.0, False),
        (5.0, 5.0, 2.0, True),
        (9.0, 0.1, 0.09, False),
    ],
)
def test_when_a_target_is_cut_off(beyond: float, others: float, typical: float | None, cut: bool) -> None:
    """After two seconds, and as long again as the others took; never one that answers quickly."""
    assert is_cut_off(beyond, others, typical) is cut


@pytest.mark.parametrize(
    ("left", "typical", "ends"),
    [(2.5, 2.0, True), (2.6, 2.0, False), (0.1, 0.1, True), (0.0, 0.09, False), (0.0, None, False)],
)
def test_when_an_answer_would_come_too_late(left: float, typical: float | None, ends: bool) -> None:
    """A quarter longer than the median may be taken; where answers are quick, or none came, the budget is used up."""
    assert winds_down(left, typical) is ends
