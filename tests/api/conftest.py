"""Fixtures of the API's tests: one server for a module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from api.server import Installation, Server


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
