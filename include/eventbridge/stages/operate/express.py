"""The express lane in this process: events are delivered as they come, in windows; the stages do the books of each.

A window is a batch that is open. What comes to the bus goes through memory: checked, matched and transformed by the
code of the stages on a store that lies in memory, sent by the engine of push. Segments record the answers with how far
the bus was read. At its end the window is moved to `planned`, and finished by the ordinary stages, which skip what the
segments show: the way on from a crash and the way on from a close are the same.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eventbridge.errors import EventBridgeError, InfrastructureError
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.stages.ingest.buffer import buffer
from eventbridge.stages.ingest.listen import listen
from eventbridge.stages.operate.deliver import deliver_references, deliver_retries, push_and_settle
from eventbridge.stages.operate.express_fit import refuse_unfit
from eventbridge.stages.operate.express_window import Window
from eventbridge.stages.operate.shift_lease import Lease
from eventbridge.stages.route.stage import route
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store

log = logging.getLogger(__name__)

#: How often parked deliveries are looked for.
_RETRY_SECONDS = 1.0
#: Stops a push before it sends.
_ALREADY = threading.Event()
_ALREADY.set()


@dataclass
class Shift:
    """What a shift did: windows committed, and events read."""

    windows: int = 0
    events: int = 0


def deliver_express(work: Runtime, runner: str, stop: threading.Event) -> Shift:
    """Deliver a runner's events as they come until `stop`, and finish what was begun.

    Raises UserError for rules that it cannot deliver, InfrastructureError where another process has the shift.
    """
    refuse_unfit(work.rule_set().for_runner(runner))
    with _scratch() as scratch, Lease(work, runner, stop) as lease:
        done = _Loop(work, runner, scratch, lease).run()
        if lease.lost.is_set():
            raise InfrastructureError(
                f"another process has taken the shift of runner {runner!r}, as this one stood still or could not reach "
                "the ledger. Nothing is lost; start this again if that process has ended"
            )
        return done


@contextmanager
def _scratch() -> Iterator[Store]:
    """Yield a store that lies in memory where the machine has such a folder."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="eventbridge-express-", dir=memory if memory.is_dir() else None)
    try:
        yield open_store(Path(folder).as_uri())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Loop:
    def __init__(self, work: Runtime, runner: str, scratch: Store, lease: Lease) -> None:
        self._work, self._runner, self._scratch, self._lease = work, runner, scratch, lease
        self._done = Shift()
        self._ended = threading.Event()
        self._retries = threading.Thread(target=self._retry, name="retries", daemon=True)

    def run(self) -> Shift:
        self._retries.start()
        try:
            while not self._lease.over:
                try:
                    self._next()
                except InfrastructureError as error:  # what it had open the next listen closes
                    log.warning("runner %s: it is tried again: %s", self._runner, error)
                    self._lease.stop.wait(_RETRY_SECONDS)
        finally:
            self._ended.set()
            self._retries.join()
        return self._done

    def _next(self) -> None:
        batch_id = listen(self._work, self._runner, holder=self._lease.holder)
        if batch_id is None:  # intake is stopped, or another runner's batch comes first
            self._lease.stop.wait(_RETRY_SECONDS)
            return
        batch = self._work.ledger.batch(batch_id)
        if batch.state != "open":  # it was left by somebody, or rules move: the stages send it
            self._close(batch_id, self._lease.stop)
            return
        window = Window(self._work, batch, self._scratch, self._lease)
        kept = window.run()
        self._done.events += window.events
        if kept:  # what it did not send is parked, due now: a push that waits for a target would hold the next window
            self._close(batch_id, _ALREADY)

    def _close(self, batch_id: str, stop: threading.Event) -> None:
        buffer(self._work, batch_id)
        chunks = route(self._work, batch_id, InProcessRouter(self._work.store))
        push_and_settle(self._work, batch_id, chunks, stop)
        self._done.windows += 1

    def _retry(self) -> None:
        while not self._ended.wait(_RETRY_SECONDS) and not self._lease.over:
            try:
                deliver_retries(self._work, self._runner, self._lease.stop)
                deliver_references(self._work, self._runner, InProcessRouter(self._work.store), self._lease.stop)
            except EventBridgeError as error:
                log.warning("runner %s: parked deliveries wait: %s", self._runner, error)
