"""A receiver that logs which run sent what, and can drop the n-th request of a run.

It runs in a thread of the test's process, so that it outlives every killed process. The URL `/<world>/<run>/<how>`
names the world and the run that sends. `how` decides the response: it is the target's name, which accepts everything
(`bad` accepts nothing), or another behaviour.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from demo.receiver_http import IncomingRequest, read_request

#: Other behaviours and their targets: refuse every tenth event, or the first or second of one item's moves,
#: temporarily, or accept what was refused permanently before.
_TARGETS = {"half": "late", "first": "strict", "second": "strict", "fixed": "bad"}
_REFUSED = {"first": "cog-0", "second": "cog-1"}

#: How a request is dropped: it is not read, or it is read without a response.
Drop = Literal["unread", "no_response"]


@dataclass(frozen=True)
class Request:
    """One request as the receiver saw it; `status` is 0 if it was accepted without a response."""

    world: str
    run: int
    how: str
    webhook_id: str
    event: str
    status: int

    @property
    def target(self) -> str:
        """The target's name."""
        return _TARGETS.get(self.how, self.how)

    @property
    def final(self) -> bool:
        """Whether the request had a response after which it need not be repeated."""
        return self.status in (200, 400)


class Log:
    """The received requests, by world, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, list[Request]] = {}
        self._seen: Counter[tuple[str, int]] = Counter()
        self.drops: dict[tuple[str, int], tuple[int, Drop]] = {}
        self.port = 0

    def url(self, world: str, run: int, how: str) -> str:
        """Return the URL for one run of a world."""
        return f"http://127.0.0.1:{self.port}/{world}/{run}/{how}"

    def of(self, world: str) -> list[Request]:
        """Return the requests of a world so far."""
        with self._lock:
            return list(self._requests.get(world, ()))

    def forget(self, world: str) -> None:
        """Forget a world that was checked."""
        with self._lock:
            self._requests.pop(world, None)

    def take(self, incoming: IncomingRequest) -> int | None:
        """Record a request and return the status of its response, None to drop the connection."""
        _, world, run, how = incoming.path.split("/", 3)
        event = json.loads(incoming.body)["id"]
        with self._lock:
            self._seen[world, int(run)] += 1
            number, drop = self.drops.get((world, int(run)), (0, "unread"))
            dropped = number == self._seen[world, int(run)]
            if dropped and drop == "unread":
                return None
            status = 0 if dropped else _status(how, event)
            webhook_id = incoming.headers["webhook-id"]
            self._requests.setdefault(world, []).append(Request(world, int(run), how, webhook_id, event, status))
        return status or None


def _status(how: str, event: str) -> int:
    if how == "bad":
        return 400
    refused = event.endswith("0") if how == "half" else event == _REFUSED.get(how)
    return 503 if refused else 200


class _Connection(asyncio.Protocol):
    def __init__(self, log: Log) -> None:
        self._log = log
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        assert self._transport is not None
        while (incoming := read_request(self._buffer) if self._buffer else None) is not None:
            self._buffer = self._buffer[incoming.length :]
            status = self._log.take(incoming)
            if status is None:
                self._transport.abort()
                return
            self._transport.write(f"HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n".encode())


@contextmanager
def receiving() -> Iterator[Log]:
    """Run the receiver during the block."""
    log = Log()
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: _Connection(log), "127.0.0.1", 0, backlog=1024))
    log.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield log
    finally:
        server.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
