"""The limit of a caller: the time of a body. For connections, see tests/security/test_connections_that_never_ask.py."""

from __future__ import annotations

import asyncio

import pytest
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
