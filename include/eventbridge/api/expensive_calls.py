"""Calls whose cost the caller chooses: SQL, rule files, tests of rules, searches of dead letters.

They run in threads of their own, so that other calls get a response while these threads are busy. They are cancelled
when they take CLOCK_SECONDS, when the caller disconnects, and when the server stops: work of unknown duration runs in
a child process, which is ended then.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, TypeVar

from fastapi import Request

from eventbridge.api.refusal import CallRefused
from eventbridge.bounded_call import CLOCK_SECONDS
from eventbridge.processes import Cancelled, cancelled, time_limit

_T = TypeVar("_T")

#: Calls that run at a time, and calls that may wait for one of them to end.
MOST_RUNNING: Final = 2
MOST_WAITING: Final = 16
#: How long a call waits before it is refused.
WAIT_SECONDS: Final = 5.0

_FULL: Final = (
    f"The server is busy with {MOST_RUNNING} calls of this kind: SQL, replays, redrives, and checks and tests of "
    "rules. Send the call again after Retry-After. Nothing was changed"
)


class ExpensiveCalls:
    """Runs the expensive calls of one server, a few at a time."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST_RUNNING)
        self._waiting = 0
        self._threads = ThreadPoolExecutor(MOST_RUNNING, thread_name_prefix="expensive")
        self._running: set[threading.Event] = set()
        self._ended = False

    async def run(self, request: Request, call: Callable[[], _T]) -> _T:
        """Run `call` in a thread and return its result, or raise its exception.

        Raises CallRefused if too many calls run or wait, Cancelled if the caller disconnected.
        """
        await self._enter()
        stop = threading.Event()
        self._running.add(stop)
        if self._ended:
            stop.set()
        context = contextvars.copy_context()
        context.run(cancelled.set, stop)
        done = asyncio.get_running_loop().run_in_executor(self._threads, context.run, _in_time, call)
        gone = asyncio.create_task(_left(request))
        try:
            await asyncio.wait((done, gone), return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                stop.set()
            return await done
        finally:
            stop.set()
            gone.cancel()
            self._running.discard(stop)
            done.add_done_callback(lambda _: self._free.release())

    def end(self) -> None:
        """Cancel every running and later call; may be called by a signal handler."""
        self._ended = True
        for stop in tuple(self._running):
            stop.set()

    def close(self) -> None:
        """Cancel running calls, and wait for their threads."""
        self.end()
        self._threads.shutdown()

    async def _enter(self) -> None:
        if self._waiting >= MOST_WAITING:
            raise _full()
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise _full() from None
        finally:
            self._waiting -= 1


def _in_time(call: Callable[[], _T]) -> _T:
    with time_limit(CLOCK_SECONDS):
        return call()


async def run_expensive(request: Request, call: Callable[[], _T]) -> _T:
    """Return the result of a expensive call on this server; see `ExpensiveCalls.run`."""
    threads: ExpensiveCalls = request.app.state.expensive
    try:
        return await threads.run(request, call)
    except Cancelled:
        detail = "The server is stopping. Send the call again after Retry-After. Nothing was changed"
        raise CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"retry-after": str(int(WAIT_SECONDS))}) from None


def _full() -> CallRefused:
    return CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, _FULL, {"retry-after": str(int(WAIT_SECONDS))})


async def _left(request: Request) -> None:
    """Return once the caller has closed the connection. Call it only after the body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
