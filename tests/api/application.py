"""Runs the application in the test's process, without a server, so that a test can hold a part of it up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from api.server import Installation

from eventbridge.api.app import create_app
from eventbridge.cli.runtime import open_runtime


@asynccontextmanager
async def application(made: Installation, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the application, whose token may publish to the bus `orders`."""
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    headers = {"authorization": f"Bearer {made.token('shop', 'publish:orders')}"}
    with open_runtime() as runtime:
        app = create_app(runtime)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers) as client,
        ):
            yield client
