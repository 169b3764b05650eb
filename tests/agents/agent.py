"""An agent of the tests: the client of the SDK, in a thread of its own, over stdio or HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
from api.server import Installation
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent, Tool

_T = TypeVar("_T")
#: Longer than any call takes on a busy machine.
SECONDS = 90.0


class Agent:
    """A connected client, whose methods wait for the server's response."""

    def __init__(self, transport: Any, *opened: AbstractContextManager[Any], http: Any = None) -> None:
        self._client = Client(transport)
        self._opened = opened
        self._http = http or nullcontext()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agent", daemon=True)

    @classmethod
    def over_stdio(cls, installation: Installation, *options: str, log: Path) -> Self:
        """Return a client that starts `eventbridge mcp`, whose standard error goes to the file `log`."""
        program, *arguments = installation.command("mcp", *options)
        parameters = StdioServerParameters(command=program, args=arguments, env=dict(installation.env))
        opened = log.open("w")
        return cls(stdio_client(parameters, errlog=opened), opened)

    @classmethod
    def over_http(cls, url: str, token: str) -> Self:
        """Return a client of a running server, with a token."""
        client = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=SECONDS)
        return cls(streamable_http_client(url, http_client=client), http=client)

    def __enter__(self) -> Self:
        self._thread.start()
        self._done = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(SECONDS)
        return self

    async def _open(self) -> asyncio.Event:
        """Open the client in a task, which also closes it, as its scopes require."""
        opened, done = asyncio.Event(), asyncio.Event()

        async def session() -> None:
            async with self._http, self._client:
                opened.set()
                await done.wait()

        self._session = self._loop.create_task(session())
        waiting = asyncio.create_task(opened.wait())
        await asyncio.wait((self._session, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not opened.is_set():
            waiting.cancel()
            await self._session
        return done

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        async def end() -> None:
            self._done.set()
            await self._session

        self._wait(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()
        for each in self._opened:
            each.__exit__(None, None, None)

    def _wait(self, waited: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(waited, self._loop).result(SECONDS)

    @property
    def instructions(self) -> str:
        """What the server tells the agent first."""
        return self._client.instructions or ""

    def tools(self) -> dict[str, Tool]:
        """Return the tools by name."""
        return {each.name: each for each in self._wait(self._client.list_tools()).tools}

    def result(self, tool: str, **arguments: Any) -> CallToolResult:
        """Call a tool; `from_` stands for the argument `from`."""
        sent = {name.removesuffix("_"): value for name, value in arguments.items()}
        return self._wait(self._client.call_tool(tool, sent))

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return its document; the call must succeed."""
        result = self.result(tool, **arguments)
        assert not result.is_error, _text(result)
        assert result.structured_content is not None
        return result.structured_content

    def error(self, tool: str, **arguments: Any) -> str:
        """Call a tool, and return its error; the call must fail."""
        result = self.result(tool, **arguments)
        assert result.is_error, _text(result)
        assert result.structured_content is None
        return _text(result)


def _text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))
