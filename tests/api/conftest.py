"""Fixtures of the API's tests: one server for a module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from api.server import Installation, Server
from api.told import told_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that runs."""
    with Server(Installation(tmp_path_factory.mktemp("served"))) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """A client whose token may publish to the bus orders."""
    with server.client(server.installation.token("shop", "publish:orders")) as opened:
        yield opened


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of `told_of`, for all tests that have nothing delivered by it: others make their own."""
    with told_of(tmp_path_factory.mktemp("told")) as running:
        yield running


@pytest.fixture(scope="session")
def looking(told: Server) -> Iterator[httpx.Client]:
    """A client whose token may look."""
    with told.client(told.installation.token("looker", "read", "payloads")) as opened:
        yield opened
