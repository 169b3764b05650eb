"""Runs the API server; on shutdown, calls in progress get a response and queued events are published."""

from __future__ import annotations

import gc
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from eventbridge.api.app import create_app
from eventbridge.api.call_pools import CallPools
from eventbridge.api.connections import MAX_CONNECTIONS, Connection
from eventbridge.api.metrics import push_metrics
from eventbridge.errors import UserError
from eventbridge.runtime.runtime import Runtime

#: The maximum time that a shutdown waits for calls in progress.
GRACE_SECONDS = 30

#: The maximum number of calls in progress, including those whose connection was closed; further calls get 503. A call
#: may end some time after its connection was closed to make room, so there may be more calls than connections.
MAX_CALLS = 2 * MAX_CONNECTIONS


class _Server(uvicorn.Server):
    """A server that reports when it listens and, on a signal to stop, cancels calls that may take long."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], object], pools: CallPools) -> None:
        super().__init__(config)
        self._report_started = started
        self._pools = pools

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: cancel the calls of `CallPools`, whose duration is unknown, and let all others finish."""
        self._pools.end()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application and listen."""
        await super().startup(sockets)
        if self.started:
            self._report_started()


def serve(runtime: Runtime, host: str, port: int, listening: Callable[[str], object]) -> None:
    """Serve the API of an installation; see `run_server`."""
    app = create_app(runtime)
    with push_metrics(runtime):
        run_server(app, app.state.pools, host, port, listening)


def run_server(app: ASGIApp, pools: CallPools, host: str, port: int, listening: Callable[[str], object]) -> None:
    """Serve an application until SIGTERM or SIGINT, then shut down gracefully; `listening` is called with the URL.

    `pools` are those whose calls a signal cancels. If `port` is 0, a free port is used. Raises UserError if the server
    cannot listen on the address.
    """
    listener = _listener(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",  # no call uses web sockets, whose connections have no limits
        limit_concurrency=MAX_CALLS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    # The server handles the signals while it runs, and raises them again after a graceful shutdown.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with long_lived_set_aside():
            _Server(config, lambda: listening(url), pools).run([listener])
    finally:
        listener.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UserError(f"cannot listen on {host}:{port}: {error.strerror}. Choose another --port or --host") from None
    return listener


#: A full collection of at least this CPU time is worth avoiding; without large rule sets, a collection takes less.
_LONG_SECONDS = 0.1


@contextmanager
def long_lived_set_aside(long_seconds: float = _LONG_SECONDS) -> Iterator[None]:
    """During the block, exclude the objects that survive a long garbage collection from later collections.

    A full collection visits every object, which takes half a second for two sets of 10,000 rules, and delays the call
    during which it happens. Excluded objects are still freed by reference counting, but not if they form a cycle.
    Therefore objects are excluded only after a collection of at least `long_seconds`, about once for each set of rules.
    """
    began = 0.0

    def measure(phase: str, collection: Mapping[str, Any]) -> None:
        nonlocal began
        if collection["generation"] != 2:
            return
        if phase == "start":
            began = time.thread_time()
        elif time.thread_time() - began >= long_seconds:
            gc.freeze()

    gc.callbacks.append(measure)
    try:
        yield
    finally:
        gc.callbacks.remove(measure)
        gc.unfreeze()
