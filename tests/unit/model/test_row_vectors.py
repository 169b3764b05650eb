"""Row sets as vectors are those of `eventbridge.model.rowset`."""

from __future__ import annotations

import numpy as np
import pytest

from eventbridge.model import row_vectors, rowset


@pytest.mark.parametrize("rows", [[], [0], [5], [0, 1, 2, 7], [7, 3, 3, 4, 9], list(range(2_000)), [0, 2, 4, 6, 7]])
def test_the_text_is_the_same(rows: list[int]) -> None:
    """Whatever the order, also with a row named twice; and what it says is what went in."""
    text = row_vectors.encode(np.array(rows, np.int64))

    assert text == rowset.encode(rows)
    assert row_vectors.decode(text).tolist() == sorted(set(rows))


def test_a_negative_row_is_refused() -> None:
    """It would vanish from the text in silence."""
    with pytest.raises(ValueError, match="-1 is not a row number"):
        row_vectors.encode(np.array([3, -1]))
