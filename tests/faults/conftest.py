"""Notes with each test how many trials of the crash matrix it was made of, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from faults.tried import CRASH_MATRIX, TRIED


@pytest.fixture(autouse=True)
def tried(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Record the trials and seconds of one test, if it had any."""
    trials, seconds = TRIED.trials, TRIED.seconds
    yield
    if TRIED.trials > trials:
        record_property(CRASH_MATRIX, (TRIED.trials - trials, TRIED.seconds - seconds))
