"""Fixtures for the stages that send: a running clock, one receiver for all tests, and an installation that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from demo.receiver import Receiver
from pipeline.delivering import Received, RunningClock, Sending
from pipeline.modes import MODE
from pipeline.ordering import Recorder


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


@pytest.fixture
def mode() -> str:
    """How `Sending.deliver` and `deliver_batch` deliver: in batch mode, or as EVENTBRIDGE_TEST_MODE says."""
    return MODE


@pytest.fixture
def sending(site: Any, receiver: Received, order: Callable[..., bytes], mode: str) -> Sending:
    """The installation, whose rules name the receiver by path, with nothing published yet."""
    return Sending(site, receiver, order, mode)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """What all targets of the test are."""
    made = Recorder()
    monkeypatch.setattr("eventbridge.targets.open.open_target", made.open)
    return made
