"""Fixtures of the API's tests: one server for a module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from api.delivered import delivered_server
from api.server import Installation, Server

from eventbridge.client import EventBridgeClient


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    with Server(Installation(tmp_path_factory.mktemp("served"))) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """A client whose token may publish to the bus orders."""
    with server.client(server.installation.token("shop", "publish:orders")) as opened:
        yield opened


@pytest.fixture(scope="session")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of `delivered_server`, shared by tests that deliver nothing; others start their own."""
    with delivered_server(tmp_path_factory.mktemp("delivered")) as running:
        yield running


@pytest.fixture(scope="session")
def reading(delivered: Server) -> str:
    """A token that may read, payloads included."""
    return delivered.installation.token("session-reader", "read", "payloads")


@pytest.fixture(scope="session")
def reader(delivered: Server, reading: str) -> Iterator[httpx.Client]:
    """A client of bare requests whose token may read, payloads included."""
    with delivered.client(reading) as opened:
        yield opened


@pytest.fixture(scope="session")
def api(delivered: Server, reading: str) -> Iterator[EventBridgeClient]:
    """The typed client, whose token may read, payloads included."""
    with delivered.api(reading) as opened:
        yield opened
