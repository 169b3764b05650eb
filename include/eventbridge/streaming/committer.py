"""Runs the committer of a streaming task: a process that reconciles the task's batches.

A thread that reconciles would share the interpreter with the thread that delivers, and so delay events. If the
committer fails, the streaming task or the process that next takes the batch runs the same stages.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import IO, Any, Final

from eventbridge.config.settings import Settings
from eventbridge.delivery.push import PushReport
from eventbridge.model.batch import Batch
from eventbridge.pipeline.deliver import push_and_settle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.checking import Check, check_one_by_one
from eventbridge.pipeline.ingest.taken_messages import TakenMessages
from eventbridge.pipeline.route.stage import route
from eventbridge.policy.chunking import PoolSlots
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop

log = logging.getLogger(__name__)

Pools = Mapping[str, PoolSlots] | None

#: The maximum wait for a reconciliation. It takes about a second, but the first one also starts the process, which can
#: take half a minute on a busy machine.
_RESPONSE_TIMEOUT_SECONDS: Final = 120.0
#: The time for which the committer is not used after such a timeout, because starting it again takes as long as
#: reconciling three batches.
_PAUSE_SECONDS: Final = 300.0
#: The maximum time that a streaming task that must stop waits for a reconciliation. It waits less, because its own
#: process is idle and its caller is waiting.
_STOPPED_SECONDS: Final = 5.0
#: The time between two checks, during a wait, whether the streaming task must stop.
_POLL_SECONDS: Final = 0.1
#: The niceness that the committer adds to that of the streaming task before it imports anything else, because events
#: have priority. Without it, the start and the first reconciliation, which take seconds of CPU time, delayed 9,000
#: events per second by up to three seconds on two cores. A much higher niceness would starve the committer on a busy
#: machine.
_NICENESS: Final = 5
#: The program of the process. It ignores signals, because the streaming task handles them and may afterwards request
#: another reconciliation.
_PROGRAM: Final = f"""
import os, signal
os.nice({_NICENESS})
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
from {__package__}.committer_process import serve
serve()
"""

#: A stop that is already set, so that a push that gets it sends no requests.
STOPPED: Final = Stop()
STOPPED.set()


def reconcile(
    runtime: Runtime,
    batch_id: str,
    pools: Pools,
    stop: Stop = STOPPED,
    only: Collection[tuple[str, str]] | None = None,
    check: Check = check_one_by_one,
    taken: TakenMessages | None = None,
) -> list[PushReport]:
    """Land, route, settle and commit a planned batch, and return the results of its pushes.

    Until `stop` is set, deliveries without an outcome are sent, or only those to the targets in `only`. Messages in
    `taken` are not read from the bus again.
    """
    buffer(runtime, batch_id, check=check, taken=taken)
    chunks = route(runtime, batch_id, InProcessRouter(runtime.store), pools, defers_budgeted=True)
    return push_and_settle(runtime, batch_id, chunks, stop, only)


class Committer:
    """Reconciles batches in a separate process, which is started for the first of them.

    Only one thread at a time may call it. Once `stop` is set, it accepts no more batches, and waits only briefly for
    the current one.
    """

    def __init__(self, settings: Settings, stop: Stop) -> None:
        self._settings = settings
        self._stop = stop
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._starting: threading.Thread | None = None
        self._paused_until = -math.inf

    @staticmethod
    def can_reconcile(runtime: Runtime, batch: Batch) -> bool:
        """Return whether a separate process can reconcile a batch.

        It can if the batch needs no connection, because the process has none, and if this process uses the ledger's
        clock, as the separate process does.
        """
        source = runtime.rules_of(batch).buses[batch.bus].source
        is_local = source.type == "embedded" and runtime.settings.store_uri.startswith("file:")
        return is_local and runtime.clock == runtime.ledger.now

    def start(self) -> None:
        """Start the process in the background, unless it is running. Starting it takes seconds."""
        if self._process is None and not self._is_paused:
            self._starting = threading.Thread(target=self._start, name="start committer", daemon=True)
            self._starting.start()

    def _start(self) -> None:
        with self._turn, suppress(OSError):  # the first reconciliation tries to start it again
            self._process = self._process or _start_process(self._settings)

    def reconcile(self, batch_id: str, pools: Pools) -> bool:
        """Reconcile a planned batch without sending anything. Return whether this succeeded."""
        if self._is_paused or self._stop.is_set():
            return False
        try:
            with self._turn:
                process = self._process = self._process or _start_process(self._settings)
            assert process.stdin is not None, "it is a pipe"
            assert process.stdout is not None, "it is a pipe"
            send(process.stdin, (batch_id, pools))
            self._wait_for(process.stdout)
            failure = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.PickleError) as error:
            ended = isinstance(error, BrokenPipeError | EOFError)
            failure = "its process has ended" if ended else f"{error}; its process is ended"
            if isinstance(error, TimeoutError):
                self._paused_until = time.monotonic() + _PAUSE_SECONDS
            self.close()
        if failure is not None:
            log.warning(
                "the streaming task itself reconciles batch %s, because the committer failed: %s", batch_id, failure
            )
        return failure is None

    def _wait_for(self, response: IO[bytes]) -> None:
        began = time.monotonic()
        end = began + _RESPONSE_TIMEOUT_SECONDS
        while not select.select([response], [], [], _POLL_SECONDS)[0]:
            now = time.monotonic()
            if self._stop.is_set():
                end = min(end, now + _STOPPED_SECONDS)
            if now >= end:
                raise TimeoutError(f"no response in {now - began:.0f} s")

    @property
    def _is_paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def close(self) -> None:
        """End the process, which is idle or has exceeded its time."""
        if self._starting is not None:
            self._starting.join()
        with self._turn:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _start_process(settings: Settings) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PROGRAM]
    # The process inherits the entire environment, because it opens the ledger, the store and the telemetry in the same
    # way as this process.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
    assert process.stdin is not None, "it is a pipe"
    send(process.stdin, settings)
    return process


def send(pipe: IO[bytes], message: Any) -> None:
    """Write an object to a pipe and flush it."""
    pickle.dump(message, pipe)
    pipe.flush()
