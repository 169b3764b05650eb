"""Sets of row numbers as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.model import rowset


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([0, 1, 2, 7], "0-2,7"),
        ([7, 2, 1, 0, 2], "0-2,7"),
        ([5, 6, 9, 10, 12], "5-6,9-10,12"),
    ],
)
def test_runs_are_shortened(rows: list[int], text: str) -> None:
    """Neighbours become one run with both ends, whatever order and repetition they come in."""
    assert rowset.encode(rows) == text
    assert list(rowset.decode(text)) == sorted(set(rows))
    assert rowset.count(text) == len(set(rows))


@given(st.sets(st.integers(0, 300)) | st.sets(st.integers(0, 2**40), max_size=20))
def test_an_encoded_rowset_is_decoded(rows: set[int]) -> None:
    """Any set of row numbers comes back, ascending, and is counted without listing it."""
    text = rowset.encode(rows)

    assert list(rowset.decode(text)) == sorted(rows)
    assert rowset.count(text) == len(rows)


def test_a_long_run_is_counted_at_once() -> None:
    """Counting costs as many steps as there are runs, not rows."""
    assert rowset.count("0-999999999999,2000000000000") == 1_000_000_000_001


def test_a_negative_row_is_refused() -> None:
    """A row number counts from 0; an error must not be left out in silence."""
    with pytest.raises(ValueError, match="-1"):
        rowset.encode([3, -1])
