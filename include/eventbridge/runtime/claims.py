"""Manages claims on chunks: a push renews its claim while it works, and other pushes wait until the claim ends.

A claim is ended early only if its process, `host:number`, is known to be dead. A process on another host counts as
alive. If a push is suspended until its claim has expired, it loses the chunk. When it continues, it records its
requests in flight, unless the batch has been settled.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from eventbridge import fault_points
from eventbridge.errors import EventBridgeError
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk, LiveClaim
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: The time that a claim lasts unless it is renewed, and the time between renewals. If a push on another host dies, the
#: next push waits at most as long as a claim lasts.
_CLAIM: Final = timedelta(seconds=6)
_RENEW_SECONDS: Final = 2.0

#: The time between two reads of a claim by a process that waits for the claim to end.
_POLL_SECONDS: Final = 0.2

#: The time beyond its budget for which a push renews its claim. It reads the chunk before the budget begins, and waits
#: for responses after the budget ends. A push that hangs for longer loses its chunk.
_BEYOND_BUDGET_SECONDS: Final = 120.0

#: The name of the thread that renews the claim of a push.
CLAIM_THREAD: Final = "claim"
_Key = tuple[str, int, int]
_claiming = threading.Lock()
_own: set[_Key] = set()  # the claims of this process's pushes


def claim(runtime: Runtime, batch: Batch, chunk_id: int, stop: threading.Event) -> Chunk | None:
    """Claim a chunk for a push of this process, as soon as no other push is working on it.

    Call `keeping` afterwards. Returns None if there is nothing to push, because the batch is not in the `routed` state
    or the chunk is completed. Also returns None if another push was working on the chunk until `stop` was set or the
    deadline of the batch had passed.
    """
    others = OtherClaims(runtime, batch.batch_id)
    was_free = False
    while True:
        with _claiming:
            until = runtime.ledger.now() + _CLAIM
            chunk = runtime.ledger.chunks.claim(batch.batch_id, chunk_id, this_process(), until)
            if chunk is not None:
                _own.add(_key(chunk))
                return chunk
        live = [found for found in others.live() if found.chunk_id == chunk_id]
        if not live and was_free:  # no push had the chunk before or after it was refused, so there is nothing to push
            return None
        was_free = not live
        late = batch.deadline_at is not None and runtime.clock() >= batch.deadline_at
        if live and (late or stop.wait(_POLL_SECONDS)):
            return None


@contextmanager
def keeping(runtime: Runtime, chunk: Chunk, on_lost: Callable[[], None]) -> Iterator[None]:
    """Renew a claim while the block runs. If another push gets the chunk, call `on_lost` in another thread."""
    ended = threading.Event()
    most = time.monotonic() + runtime.settings.push_timeout + _BEYOND_BUDGET_SECONDS

    def renew() -> None:
        while not ended.wait(_RENEW_SECONDS) and time.monotonic() < most:
            fault_points.reach("claim.renew")
            try:
                until = runtime.ledger.now() + _CLAIM
                if not runtime.ledger.chunks.renew_claim(chunk.batch_id, chunk.chunk_id, chunk.claim, until):
                    if not ended.is_set():
                        on_lost()
                    return
            except EventBridgeError as error:
                log.warning("chunk %s of batch %s: %s", chunk.chunk_id, chunk.batch_id, error)

    thread = threading.Thread(target=renew, name=CLAIM_THREAD, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_RENEW_SECONDS)  # a thread that is still waiting for the ledger does no harm
        with _claiming:
            _own.discard(_key(chunk))


def begin_settlement(runtime: Runtime, batch_id: str) -> None:
    """Begin the settlement of a routed batch, as soon as no push is working on it.

    Returns as soon as the settlement has begun, whichever process began it.
    """
    others = OtherClaims(runtime, batch_id)
    while not runtime.ledger.settlement.begin(batch_id) and runtime.ledger.batches.get(batch_id).state == "routed":
        if others.live():
            time.sleep(_POLL_SECONDS)


class OtherClaims:
    """Lists the live claims on chunks of a batch, and ends those of dead processes."""

    def __init__(self, runtime: Runtime, batch_id: str) -> None:
        self._runtime, self._batch_id = runtime, batch_id
        self._seen: dict[LiveClaim, float] = {}  # since when each claim is unchanged, by this process's clock

    def live(self) -> list[LiveClaim]:
        """Return the claims of pushes that are working on the batch, or may be."""
        found, now = self._runtime.ledger.chunks.live_claims(self._batch_id), time.monotonic()
        known = {(each.chunk_id, each.claim) for each in self._seen}
        self._seen = {each: self._seen.get(each, now) for each in found}
        live = []
        for each in found:
            if self._is_dead(each, now):
                self._runtime.ledger.chunks.release_claim(self._batch_id, each)
                continue
            live.append(each)
            if (each.chunk_id, each.claim) not in known:
                log.warning(
                    "batch %s: waiting until process %s has ended its push of chunk %d",
                    *(self._batch_id, each.worker, each.chunk_id),
                )
        return live

    def _is_dead(self, found: LiveClaim, now: float) -> bool:
        if found.worker == this_process():
            with _claiming:
                return (self._batch_id, found.chunk_id, found.claim) not in _own
        # If the ledger's clock stops, a claim that is not renewed still runs out by this process's clock.
        return is_gone(found.worker) or now - self._seen[found] > _CLAIM.total_seconds()


def _key(chunk: Chunk) -> _Key:
    return chunk.batch_id, chunk.chunk_id, chunk.claim


def this_process() -> str:
    """Return the name of this process in the ledger: `host:number`."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(name: str) -> bool:
    """Return whether `host:number` names a process of this host that no longer exists.

    Returns False if this cannot be known, because the process is on another host, or because the system has given its
    number to another process.
    """
    host, _, number = name.rpartition(":")
    return host == socket.gethostname() and number.isdecimal() and not _process_exists(int(number))


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True
