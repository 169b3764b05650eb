"""Fixtures of the unit tests: an embedded bus, a receiver, and what was synced to the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo.receiver import Receiver
from unit.buses import ticking

from eventbridge.sources.embedded.bus import EmbeddedBus


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[EmbeddedBus]:
    """Yield an empty bus of one partition whose clock ticks with every publish."""
    with EmbeddedBus(tmp_path, "shop", partitions=1, clock=ticking()) as bus:
        yield bus


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Run one receiver for the module; it keeps requests whole."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "log.jsonl", whole=True) as running:
        yield running


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which every fsync of this process adds the path it was made for."""
    paths: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths
