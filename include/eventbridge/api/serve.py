"""Runs the API server; at its end, calls in progress get a response and queued events are published."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from eventbridge.api.app import create_app
from eventbridge.api.costly_calls import CostlyCalls
from eventbridge.api.long_lived import long_lived_set_aside
from eventbridge.api.pushed_metrics import pushed_metrics
from eventbridge.errors import UserError
from eventbridge.runtime.runtime import Runtime

#: How long a shutdown waits for calls in progress.
GRACE_SECONDS = 30

#: With more open connections, each perhaps with a body of 8 MiB, calls get 503.
MOST_CONNECTIONS = 256


class _Server(uvicorn.Server):
    """Reports when it listens, and cancels costly calls when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], object], costly: CostlyCalls) -> None:
        super().__init__(config)
        self._report_started = started
        self._costly = costly

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: finish calls in progress, except costly ones, whose duration is unknown."""
        self._costly.end()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application and listen."""
        await super().startup(sockets)
        if self.started:
            self._report_started()


def serve(runtime: Runtime, host: str, port: int, listening: Callable[[str], object]) -> None:
    """Serve until SIGTERM or SIGINT, then shut down gracefully; `listening` is called with the URL.

    `port` 0: a free port. Raises UserError if the server cannot listen on the address.
    """
    listener = _listener(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    app = create_app(runtime)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    # The server handles the signals while it runs, and raises them again after a graceful shutdown.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pushed_metrics(runtime), long_lived_set_aside():
            _Server(config, lambda: listening(url), app.state.costly).run([listener])
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
