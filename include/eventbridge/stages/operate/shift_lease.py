"""The lease of a shift: one process at a time delivers a runner's events as they come."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from datetime import timedelta

from eventbridge.errors import EventBridgeError, InfrastructureError
from eventbridge.stages.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: How long a shift holds unless it is renewed, and how often it is: a loop that dies is taken over after that.
_LEASE = timedelta(seconds=6)
_RENEW_SECONDS = 2.0


class Lease:
    """A runner's shift, renewed by a thread of its own; lost or stopped, `over` is set."""

    def __init__(self, work: Runtime, runner: str, stop: threading.Event) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self.stop = stop
        self._work, self._runner = work, runner
        self.lost = threading.Event()  # another may have the shift
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="shift", daemon=True)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be begun."""
        return self.stop.is_set() or self.lost.is_set()

    def __enter__(self) -> Lease:
        if not self._take():
            raise InfrastructureError(
                f"another process delivers the events of runner {self._runner!r}, in a shift. "
                "Wait until it ends; `eventbridge status` shows its batches"
            )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._work.ledger.end_shift(self._runner, self.holder)

    def _take(self) -> bool:
        return self._work.ledger.take_shift(self._runner, self.holder, self._work.ledger.now() + _LEASE)

    def _renew(self) -> None:
        while not self._ended.wait(_RENEW_SECONDS):
            try:
                kept = self._take()
            except EventBridgeError as error:
                log.warning("runner %s: its shift could not be renewed: %s", self._runner, error)
                continue
            if not kept:
                log.warning("runner %s: another process has taken its shift", self._runner)
                self.lost.set()
                return
