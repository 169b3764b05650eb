"""The thread that publishes to a bus, with cancelled calls."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

from eventbridge.api.buses import BusWriter
from eventbridge.sources.embedded.bus import EmbeddedBus

WAIT = 20


def test_a_cancelled_call_does_not_affect_others(tmp_path: Path) -> None:
    """A call in progress is published, a queued call is not, and the writer continues."""
    opening, may_open = threading.Event(), threading.Event()

    def opened() -> EmbeddedBus:
        opening.set()
        may_open.wait(WAIT)
        return EmbeddedBus(tmp_path, "orders", topics=("placed",), partitions=1, clock=lambda: datetime.now(UTC))

    writer = BusWriter("orders", opened)
    in_progress = writer.publish([(b"in_progress", None)], "placed")
    assert opening.wait(WAIT)
    waiting = writer.publish([(b"waiting", None)], "placed")
    cancelled = in_progress.cancel(), waiting.cancel()
    may_open.set()
    after = writer.publish([(b"after", None)], "placed")

    ((_, offset),) = after.result(WAIT)
    writer.close()

    assert cancelled == (False, True)
    assert offset == 1
