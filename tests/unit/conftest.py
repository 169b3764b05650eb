"""Fixtures of the unit tests: an embedded bus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.buses import ticking

from eventbridge.sources.embedded import EmbeddedBus


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[EmbeddedBus]:
    """Yield an empty bus of one queue whose clock ticks with every publish."""
    with EmbeddedBus(tmp_path, "shop", queues=1, clock=ticking()) as bus:
        yield bus
