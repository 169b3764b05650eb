"""Implements the queue as a target that can be opened and checked; `delivery.by_queue` fills it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from datetime import datetime

from eventbridge.model.outcome import Response
from eventbridge.targets.open import TargetSetup
from eventbridge.targets.protocol import Request
from eventbridge.targets.queue.fields import PullQueueFields

_NOT_SENT = "a queue takes only deliveries of events. Publish an event that the rule matches, then receive it"


class QueueTarget:
    """A queue. It is in the ledger, so it has no connection, and is reached whenever the ledger is."""

    flush_every = 1
    more_of_response = 0

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock

    def deliver(self, requests: Sequence[Request], until: datetime) -> Generator[tuple[int, Response], None, None]:
        """Refuse every request: what no batch accounts for would never be settled."""
        for request in requests:
            yield request.index, Response(False, self._clock(), 0.0, error_class="MessageRefused", error=_NOT_SENT)

    def flush(self) -> None:
        """Return immediately, because a delivery in a queue is durable."""

    def check(self) -> str | None:
        """Return None: the ledger, which the caller has read, is all that a queue needs."""
        return None

    def close(self) -> None:
        """Do nothing."""


def open_queue(opening: TargetSetup[PullQueueFields]) -> QueueTarget:
    """Return a queue."""
    return QueueTarget(opening.clock)
