"""Fixtures of the stages that send: a clock that runs, and one receiver for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from stages.delivering import RunningClock

from eventbridge.testing.receiver import Receiver


@dataclass(frozen=True)
class Received:
    """A receiver as one test sees it: without what came before."""

    server: Receiver
    before: int

    def url(self, path: str) -> str:
        """Return the URL of a path such as `/healthy/crm`."""
        return self.server.url(path)

    def requests(self) -> list[dict[str, Any]]:
        """Return what was received since the test began."""
        return self.server.requests()[self.before :]


@pytest.fixture
def clock() -> RunningClock:
    """The machine's clock, which a test may put forward."""
    return RunningClock()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A receiver that records its requests."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "requests.jsonl") as running:
        yield running


@pytest.fixture
def receiver(server: Receiver) -> Received:
    """The receiver, with nothing received yet."""
    return Received(server, len(server.requests()))
