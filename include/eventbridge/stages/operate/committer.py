"""The committer of a streaming task: a process that reconciles its batches, so that they take no turns with the
loop.

A thread that does them and the one that delivers hold one interpreter in turns, which is what events then wait for.
Whatever becomes of the committer, the same stages finish the batch wherever they are called next.
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
from contextlib import closing, suppress
from queue import SimpleQueue
from typing import IO, Any, Final

from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.decision.chunking import PoolSlots
from eventbridge.errors import EventBridgeError, UserError
from eventbridge.model.batch import Batch
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.routing.warm_up import compile_ahead
from eventbridge.stages.ingest.buffer import buffer
from eventbridge.stages.ingest.checked import Check, check_one_by_one
from eventbridge.stages.ingest.compiled_check import check_compiled
from eventbridge.stages.ingest.taken_messages import TakenMessages
from eventbridge.stages.operate.deliver import push_and_settle
from eventbridge.stages.route.stage import route
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.runtime.stop import Stop
from eventbridge.telemetry.selection import telemetry_from_environment

log = logging.getLogger(__name__)

Pools = Mapping[str, PoolSlots] | None

#: How long a reconciliation may take: a second, but for the first ones, before which a busy machine starts the process
#: in half a minute. Given up, it is not tried again for a while: to start it takes as long as the reconciliation of
#: three batches. A streaming task that is to stop waits less: its own process has nothing else to do then, and what
#: ends it waits for that.
_PATIENCE_SECONDS: Final = 120.0
_REST_SECONDS: Final = 300.0
_STOPPED_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.1
#: Its niceness, added to the loop's, before anything else is imported: events go before reconciliation. To start and to
#: do the first reconciliation takes seconds of CPU time, for which 9,000 events a second waited up to three seconds on
#: two cores. Much more niceness, and a busy machine starves it.
_NICENESS: Final = 5
#: Signals are the streaming task's, which may ask for its last reconciliation then.
_PROGRAM: Final = f"""
import os, signal
os.nice({_NICENESS})
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
from {__name__} import serve
serve()
"""

#: Stops a push before it sends.
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
) -> None:
    """Land, route, settle and commit a batch that is planned; what has no outcome is sent to `only`, until `stop`.

    What it has `taken` of its bus is not read again.
    """
    buffer(runtime, batch_id, check=check, taken=taken)
    chunks = route(runtime, batch_id, InProcessRouter(runtime.store), pools, defers_budgeted=True)
    push_and_settle(runtime, batch_id, chunks, stop, only)


class Committer:
    """Reconciles windows in a process of its own, started with the first of them; one thread at a time asks it.

    Once `stop` is set it takes none any more, and what it is at is not waited for long.
    """

    def __init__(self, settings: Settings, stop: Stop) -> None:
        self._settings = settings
        self._stop = stop
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._starting: threading.Thread | None = None
        self._resting_until = -math.inf

    @staticmethod
    def can_reconcile(runtime: Runtime, batch: Batch) -> bool:
        """Return whether another process can: one that has no connections, and the ledger's clock."""
        source = runtime.rules_of(batch).buses[batch.bus].source
        is_local = source.type == "embedded" and runtime.settings.store_uri.startswith("file:")
        return is_local and runtime.clock == runtime.ledger.now

    def start(self) -> None:
        """Let its process begin to start, which takes seconds, unless it has; returns at once."""
        if self._process is None and not self._is_resting:
            self._starting = threading.Thread(target=self._start, name="start committer", daemon=True)
            self._starting.start()

    def _start(self) -> None:
        with self._turn, suppress(OSError):  # then it is started, or not, with its first reconciliation
            self._process = self._process or _start_process(self._settings)

    def reconcile(self, batch_id: str, pools: Pools) -> bool:
        """Reconcile a batch that is planned, and send nothing; False: it did not, for whatever reason."""
        if self._is_resting or self._stop.is_set():
            return False
        try:
            with self._turn:
                process = self._process = self._process or _start_process(self._settings)
            assert process.stdin is not None, "it is a pipe"
            assert process.stdout is not None, "so is this"
            _send(process.stdin, (batch_id, pools))
            self._wait_for(process.stdout)
            said = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.PickleError) as error:
            ended = isinstance(error, BrokenPipeError | EOFError)
            said = "its process has ended" if ended else f"its process is given up: {error}"
            if isinstance(error, TimeoutError):
                self._resting_until = time.monotonic() + _REST_SECONDS
            self.close()
        if said is not None:
            log.warning("batch %s is closed by the loop's own process, as its committer could not: %s", batch_id, said)
        return said is None

    def _wait_for(self, response: IO[bytes]) -> None:
        began = time.monotonic()
        end = began + _PATIENCE_SECONDS
        while not select.select([response], [], [], _LOOK_SECONDS)[0]:
            now = time.monotonic()
            if self._stop.is_set():
                end = min(end, now + _STOPPED_SECONDS)
            if now >= end:
                raise TimeoutError(f"no response in {now - began:.0f} s")

    @property
    def _is_resting(self) -> bool:
        return time.monotonic() < self._resting_until

    def close(self) -> None:
        """End the process, which is at rest, or is given up."""
        if self._starting is not None:
            self._starting.join()
        with self._turn:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _start_process(settings: Settings) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PROGRAM]
    # It has the whole environment: it opens ledger, store and telemetry as this process does
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
    assert process.stdin is not None, "it is a pipe"
    _send(process.stdin, settings)
    return process


def _send(pipe: IO[bytes], what: Any) -> None:
    pickle.dump(what, pipe)
    pipe.flush()


def _no_connection(name: str) -> Connection:
    raise UserError(f"the committer of a streaming task has no connections, and {name!r} is asked for")


def serve() -> None:
    """Reconcile windows as they are asked for; ends at once, whatever it is at, when the pipe does: its streaming task
    is no more.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings: Settings = pickle.load(sys.stdin.buffer)
    asked: SimpleQueue[tuple[str, Pools]] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, asked), daemon=True).start()
    with closing(Runtime.open(settings, _no_connection, telemetry=telemetry_from_environment(os.environ))) as runtime:
        compile_ahead()
        while True:
            try:
                reconcile(runtime, *asked.get(), check=check_compiled)
            except EventBridgeError as error:
                _send(responses, str(error))
            else:
                _send(responses, None)


def _listen(pipe: IO[bytes], asked: SimpleQueue[tuple[str, Pools]]) -> None:
    try:
        while True:
            asked.put(pickle.load(pipe))
    finally:
        os._exit(0)
