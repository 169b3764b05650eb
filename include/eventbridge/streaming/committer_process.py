"""Runs the process of a committer, to which the streaming task sends the ids of batches to reconcile through a pipe."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from contextlib import closing
from queue import SimpleQueue
from typing import IO

from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError, UserError
from eventbridge.pipeline.ingest.compiled_check import check_compiled
from eventbridge.routing.warm_up import compile_ahead
from eventbridge.runtime.open import open_runtime
from eventbridge.streaming.committer import Pools, reconcile, send
from eventbridge.telemetry.selection import telemetry_from_environment


def _no_connection(name: str) -> Connection:
    raise UserError(f"the committer of a streaming task has no connections, but it needs {name!r}")


def serve() -> None:
    """Reconcile requested batches until the pipe is closed.

    The process then exits immediately, even during a reconciliation, because the streaming task has ended.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings: Settings = pickle.load(sys.stdin.buffer)
    asked: SimpleQueue[tuple[str, Pools]] = SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, asked), daemon=True).start()
    with closing(open_runtime(settings, _no_connection, telemetry=telemetry_from_environment(os.environ))) as runtime:
        compile_ahead()
        while True:
            try:
                reconcile(runtime, *asked.get(), check=check_compiled)
            except EventBridgeError as error:
                send(responses, str(error))
            else:
                send(responses, None)


def _receive(pipe: IO[bytes], asked: SimpleQueue[tuple[str, Pools]]) -> None:
    try:
        while True:
            asked.put(pickle.load(pipe))
    finally:
        os._exit(0)
