"""Room for worlds; and notes with each test how many trials of the crash matrix it was, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.room import room
from faults.tried import CRASH_MATRIX, TRIED, in_all


@pytest.fixture(scope="module")
def worlds() -> Iterator[Path]:
    """A folder for worlds."""
    with room() as folder:
        yield folder


@pytest.fixture(autouse=True)
def tried(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Record the trials of one test, if it had any."""
    before = len(TRIED)
    yield
    if TRIED[before:]:
        record_property(CRASH_MATRIX, tuple(in_all(TRIED[before:])))
