"""Runs calls that may take long in separate thread pools, so that all other calls get a response meanwhile.

These are calls whose cost the caller chooses (SQL, rule files, tests of rules, replays, redrives), and calls that read
files of the store, wait for a target, or query the servers of buses. A call is cancelled when its caller disconnects or
the server stops; expensive calls and reads of the store are also cancelled after CLOCK_SECONDS. Readers of the store
check for cancellation at each file and row group; work of unknown duration runs in a child process, which is killed.
Bodies that are large or compressed are read in pools too, because a body of 3 KB may decompress to 8 MiB. Reading a
body is not cancelled, because it takes a few seconds at most.

The pools of asyncio and of the framework are for calls that wait only for the ledger: checks of tokens and
health, and publishing. A web server that mounts the application uses these pools too.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, ParamSpec, TypeVar

from fastapi import Request, Response

from eventbridge.api.refusal import CallRefused
from eventbridge.bounded_call import CLOCK_SECONDS
from eventbridge.processes import Cancelled, cancelled, time_limit

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: The maximum number of expensive calls that run at a time, and of calls that wait for one of them to end.
MAX_RUNNING: Final = 2
MAX_WAITING: Final = 16
#: The time that a call waits before it is refused.
WAIT_SECONDS: Final = 5.0
#: The maximum number of calls that read the store at a time, because each takes memory, and of calls that wait for one
#: of them to end.
MAX_STORE_READS: Final = 4
MAX_WAITING_STORE_READS: Final = 32
#: The maximum number of calls that wait for a target at a time. Each may wait for as long as the target's timeout.
MAX_AT_TARGETS: Final = 8
#: The maximum number of calls that query the servers of buses at a time, and of calls that wait for one of them to end.
MAX_AT_BUSES: Final = 16
MAX_WAITING_FOR_BUSES: Final = 128
#: The maximum number of bodies that are read at a time, and of calls that wait for one of them to end. More than two
#: threads would only wait for Python's global lock.
MAX_BODY_READS: Final = 2
MAX_WAITING_BODY_READS: Final = 256
#: The maximum size of a body that is read in the pool of asyncio; a larger one would delay calls that wait only
#: for the ledger.
SMALL_BYTES: Final = 256 * 1024

_AGAIN: Final = "Send the call again after the delay in Retry-After"


@dataclass(frozen=True)
class CallKind:
    """A kind of call: how many may run and wait at a time, and the messages for refused ones."""

    name: str
    running: int
    waiting: int
    #: The end of the message "The server is busy with N calls ...".
    described: str
    #: The statement, in the refusal of a call that was cancelled because the server stops, about the call's effect.
    stopped: str = "Nothing was changed"
    #: The maximum duration of a call; None means unlimited, because it depends on other servers.
    seconds: float | None = None


EXPENSIVE: Final = CallKind(
    "expensive",
    MAX_RUNNING,
    MAX_WAITING,
    "of this kind: SQL, replays, redrives, and checks and tests of rules",
    seconds=CLOCK_SECONDS,
)
STORE_READS: Final = CallKind(
    "store", MAX_STORE_READS, MAX_WAITING_STORE_READS, "that read the store", seconds=CLOCK_SECONDS
)
AT_TARGETS: Final = CallKind(
    "targets", MAX_AT_TARGETS, MAX_WAITING, "that wait for targets", "The target may have received the event"
)
AT_BUSES: Final = CallKind("buses", MAX_AT_BUSES, MAX_WAITING_FOR_BUSES, "that query the servers of buses")
BODIES: Final = CallKind("bodies", MAX_BODY_READS, MAX_WAITING_BODY_READS, "with large or compressed bodies")
#: Separate from BODIES, because callers of webhooks have no token.
WEBHOOKS: Final = CallKind(
    "webhooks", MAX_BODY_READS, MAX_WAITING_BODY_READS, "of webhooks with large or compressed bodies"
)


class CallPool:
    """Runs the calls of one kind, a few at a time."""

    def __init__(self, kind: CallKind) -> None:
        self._kind = kind
        self._free = asyncio.Semaphore(kind.running)
        self._waiting = 0
        self._threads = ThreadPoolExecutor(kind.running, thread_name_prefix=kind.name)
        self._running: set[threading.Event] = set()
        self._ended = False

    async def run(self, request: Request, call: Callable[[], _T]) -> _T:
        """Run `call` in a thread and return its result, or raise its exception.

        Raises CallRefused if too many calls run or wait, or if the call was cancelled because the caller disconnected
        or the server is stopping. Raises TimeSpent if the call took longer than its kind allows.
        """
        await self._wait_for_slot()
        stop = threading.Event()
        self._running.add(stop)
        if self._ended:
            stop.set()
        context = contextvars.copy_context()
        context.run(cancelled.set, stop)
        done = asyncio.get_running_loop().run_in_executor(self._threads, context.run, self._call_with_limit, call)
        gone = asyncio.create_task(wait_for_disconnect(request))
        try:
            await asyncio.wait((done, gone), return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                stop.set()
            return await done
        except Cancelled:
            raise _refusal(f"The server is stopping. {_AGAIN}. {self._kind.stopped}") from None
        finally:
            stop.set()
            gone.cancel()
            self._running.discard(stop)
            done.add_done_callback(self._free_slot)

    def _free_slot(self, done: asyncio.Future[Any]) -> None:
        """Let the next call run, and retrieve the exception, for which a cancelled task does not wait."""
        self._free.release()
        if not done.cancelled():
            done.exception()

    def end(self) -> None:
        """Cancel every running and later call; may be called by a signal handler."""
        self._ended = True
        for stop in tuple(self._running):
            stop.set()

    def close(self) -> None:
        """Cancel running calls, and wait for their threads."""
        self.end()
        self._threads.shutdown()

    async def _wait_for_slot(self) -> None:
        if self._waiting >= self._kind.waiting:
            raise self._busy_refusal()
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise self._busy_refusal() from None
        finally:
            self._waiting -= 1

    def _call_with_limit(self, call: Callable[[], _T]) -> _T:
        if self._kind.seconds is None:
            return call()
        with time_limit(self._kind.seconds):
            return call()

    def _busy_refusal(self) -> CallRefused:
        kind = self._kind
        return _refusal(f"The server is busy with {kind.running} calls {kind.described}. {_AGAIN}. Nothing was changed")


class CallPools:
    """The pools of one server."""

    def __init__(self) -> None:
        self.expensive, self.store_reads = CallPool(EXPENSIVE), CallPool(STORE_READS)
        self.at_targets, self.at_buses = CallPool(AT_TARGETS), CallPool(AT_BUSES)
        self.bodies, self.webhooks = CallPool(BODIES), CallPool(WEBHOOKS)
        #: Whether calls that wait must end, because the server stops.
        self.has_ended = False
        self._all = (self.expensive, self.store_reads, self.at_targets, self.at_buses, self.bodies, self.webhooks)

    def end(self) -> None:
        """Cancel every running and later call; may be called by a signal handler."""
        self.has_ended = True
        for pool in self._all:
            pool.end()

    def close(self) -> None:
        """Cancel running calls, and wait for their threads."""
        self.end()
        for pool in self._all:
            pool.close()


async def run_briefly(request: Request, call: Callable[[], _T]) -> _T:
    """Return the result of a call that waits only for the ledger."""
    return await asyncio.to_thread(call)


async def run_expensive(request: Request, call: Callable[[], _T]) -> _T:
    """Return the result of a call whose cost the caller chooses; see `CallPool.run`."""
    return await _pools(request).expensive.run(request, call)


async def run_store_read(request: Request, call: Callable[[], _T]) -> _T:
    """Return the result of a call that reads files of the store; see `CallPool.run`."""
    return await _pools(request).store_reads.run(request, call)


async def run_at_target(request: Request, call: Callable[[], _T]) -> _T:
    """Return the result of a call that waits for a target; see `CallPool.run`."""
    return await _pools(request).at_targets.run(request, call)


async def run_at_buses(request: Request, call: Callable[[], _T]) -> _T:
    """Return the result of a call that queries the servers of buses; see `CallPool.run`."""
    return await _pools(request).at_buses.run(request, call)


async def run_on_body(request: Request, content: bytes, call: Callable[[], _T]) -> _T:
    """Return the result of a call that reads a request's body; for a large or compressed body, see `CallPool.run`."""
    return await _run_on_body(_pools(request).bodies, request, content, call)


async def run_on_webhook(request: Request, content: bytes, call: Callable[[], _T]) -> _T:
    """Return the result of a call that reads a webhook's body; for a large or compressed body, see `CallPool.run`."""
    return await _run_on_body(_pools(request).webhooks, request, content, call)


async def _run_on_body(pool: CallPool, request: Request, content: bytes, call: Callable[[], _T]) -> _T:
    is_small = len(content) <= SMALL_BYTES and "content-encoding" not in request.headers
    return await (asyncio.to_thread(call) if is_small else pool.run(request, call))


def asks_buses(endpoint: Callable[_P, Response]) -> Callable[_P, Awaitable[Response]]:
    """Run an endpoint, which has a `request` parameter, in the pool of calls that query the servers of buses."""
    return _run_in_pool(run_at_buses, endpoint)


def reads_store(endpoint: Callable[_P, Response]) -> Callable[_P, Awaitable[Response]]:
    """Run an endpoint, which has a `request` parameter, in the pool of calls that read files of the store."""
    return _run_in_pool(run_store_read, endpoint)


def _run_in_pool(
    pool: Callable[[Request, Callable[[], Response]], Awaitable[Response]], endpoint: Callable[_P, Response]
) -> Callable[_P, Awaitable[Response]]:
    @functools.wraps(endpoint)
    async def run(*args: _P.args, **values: _P.kwargs) -> Response:
        request: Any = values["request"]  # the framework passes every parameter by name
        return await pool(request, lambda: endpoint(*args, **values))

    return run


def _pools(request: Request) -> CallPools:
    pools: CallPools = request.app.state.pools
    return pools


def _refusal(detail: str) -> CallRefused:
    return CallRefused(
        HTTPStatus.SERVICE_UNAVAILABLE, detail, {"retry-after": str(int(WAIT_SECONDS))}, code="server_busy"
    )


async def wait_for_disconnect(request: Request) -> None:
    """Return once the caller has closed the connection. Call it only after the body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
