"""Limits of one caller: connections, and the time of a body."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest
from api.server import Server
from fastapi import Request
from starlette.types import Message

from eventbridge.api.publish import content_of
from eventbridge.api.refusal import CallRefused


def test_a_body_that_does_not_arrive_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that stops in the middle of a body gets an explanation, and the connection is closed."""
    monkeypatch.setattr("eventbridge.api.publish.BODY_SECONDS", 0.01, raising=False)

    async def read() -> None:
        parts: asyncio.Queue[Message] = asyncio.Queue()
        parts.put_nowait({"type": "http.request", "body": b"[", "more_body": True})
        await asyncio.wait_for(content_of(Request({"type": "http"}, parts.get)), 10)

    with pytest.raises(CallRefused, match="did not arrive within") as raised:
        asyncio.run(read())
    assert (raised.value.status, raised.value.headers) == (408, {"connection": "close"})


def test_connections_beyond_the_limit_get_503(server: Server) -> None:
    """Once others have closed, the server responds again."""
    port = int(server.url.rpartition(":")[2])
    call = b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n"
    with ExitStack() as held:
        opened = [held.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(256)]
        opened[-1].sendall(call)
        last = opened[-1].recv(1_000)
    with server.client() as client:
        # the server notices with a delay that the others have closed
        after = next(status for _ in range(10_000) if (status := client.get("/health").status_code) == 200)

    assert last.startswith(b"HTTP/1.1 503")
    assert after == 200
