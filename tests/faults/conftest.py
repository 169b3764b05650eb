"""Provides a folder for worlds, and records each test's number of crash matrix trials and their duration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.room import room
from faults.tried import CRASH_MATRIX, TRIED, in_all


@pytest.fixture(scope="module")
def worlds() -> Iterator[Path]:
    """Provide a folder for worlds."""
    with room() as folder:
        yield folder


@pytest.fixture(autouse=True)
def tried(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Record the trials of one test, if it ran any."""
    before = len(TRIED)
    yield
    if TRIED[before:]:
        record_property(CRASH_MATRIX, tuple(in_all(TRIED[before:])))
