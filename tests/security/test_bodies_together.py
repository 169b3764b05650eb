"""Somebody without a token sends many large bodies at a time: all together they are bounded, and leave others room."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from eventbridge.api.middleware import MAX_HELD_BYTES, BodyLimit

SIZE = 8 * 1024 * 1024
MOST = MAX_HELD_BYTES // SIZE


class Calls:
    """Calls in progress, each of which has read its body and waits. The bodies are one object, to spare memory."""

    def __init__(self) -> None:
        self.content = bytes(SIZE)
        self.end = asyncio.Event()
        self.refused: list[HTTPException] = []
        self.limit = BodyLimit(self._read)

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await receive()
        except HTTPException as refused:
            self.refused.append(refused)
            return
        await self.end.wait()

    async def _body(self) -> Message:
        return {"type": "http.request", "body": self.content, "more_body": False}

    async def _send(self, message: Message) -> None:
        raise AssertionError(f"{message} is sent")

    def call(self, path: str) -> asyncio.Task[None]:
        """Begin a call."""

        async def run() -> None:
            await self.limit({"type": "http", "path": path}, self._body, self._send)

        return asyncio.create_task(run())


async def _sent(first: str, then: str) -> tuple[int, int, list[HTTPException]]:
    """Fill one kind with bodies, send one of another, then end all; return refusals before, then and after."""
    calls = Calls()
    begun = [calls.call(first) for _ in range(MOST + 1)]
    await asyncio.sleep(0)
    filled = len(calls.refused)
    begun.append(calls.call(then))
    await asyncio.sleep(0)
    refused = len(calls.refused) - filled
    calls.end.set()
    await asyncio.gather(*begun)
    await asyncio.gather(*(calls.call(first) for _ in range(MOST)))
    return filled, refused, calls.refused


@pytest.mark.parametrize("path", ["/v1/hooks/code", "/v1/buses/orders/events"])
def test_bodies_are_bounded_together(path: str) -> None:
    """One body more than fits is refused until others have ended."""
    filled, refused, reasons = asyncio.run(_sent(path, path))

    assert (filled, refused, len(reasons)) == (1, 1, 2)
    assert {each.status_code for each in reasons} == {HTTPStatus.SERVICE_UNAVAILABLE}
    assert all(each.headers and each.headers["retry-after"] == "5" for each in reasons)


def test_webhooks_leave_others_room() -> None:
    """Calls without a token cannot keep those with a token from publishing."""
    filled, refused, _ = asyncio.run(_sent("/v1/hooks/code", "/v1/buses/orders/events"))

    assert (filled, refused) == (1, 0)
