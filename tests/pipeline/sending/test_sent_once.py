"""A target that responds within its timeout gets each delivery once, however long a response takes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pipeline.delivering import Sending, http, segment_rows

from eventbridge import fault_points
from eventbridge.repair.audit import audit

#: Most requests get a response at once, one of sixteen after 1.5 seconds of the ten that it may take.
SOME_LATE = http("/some-late/1500/16/crm", timeout="10s")
DELIVERIES = 500


@contextmanager
def _spinning(processes: int) -> Iterator[None]:
    """Keep processors busy with processes that never rest."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.mark.parametrize("beside", [0, 2])
def test_a_target_that_responds_late_to_some_requests_gets_each_delivery_once(sending: Sending, beside: int) -> None:
    """The record says what was sent: one attempt of each delivery, also while other processes take the processors."""
    runtime = sending.begin(10, crm=SOME_LATE, note="/healthy/note")
    sending.deliver_batch()
    sending.publish(DELIVERIES)

    with _spinning(beside):
        sending.deliver_batch()
        sending.deliver()

    received = Counter(request["webhook_id"] for request in sending.requests() if "some-late" in request["path"])
    rows = [
        row
        for batch in runtime.ledger.batches.find(limit=None)
        for row in segment_rows(runtime, batch.batch_id)
        if row["target"] == "crm"
    ]
    assert Counter(received.values()) == {1: DELIVERIES + 10}
    assert Counter((row["outcome"], row["sent"], row["attempt"]) for row in rows) == {
        ("delivered", True, 1): DELIVERIES + 10
    }
    assert ("orders", "crm") not in runtime.ledger.targets.statuses()
    assert audit(runtime).differences == ()


def test_a_process_without_a_processor_does_not_degrade_a_healthy_target(sending: Sending) -> None:
    """It stands still for three seconds while twenty responses wait to be read: the target took a second of its ten."""
    runtime = sending.begin(20, crm=http("/delay/1000", timeout="10s", max_in_flight=20), note="/healthy/note")
    stalled = threading.Event()

    def stand_still(point: str) -> None:
        if point == "target.responded" and not stalled.is_set():
            stalled.set()
            threading.Event().wait(3.0)

    fault_points.install(stand_still)
    sending.deliver_batch()

    assert stalled.is_set()
    durations = [
        row["duration_ms"]
        for batch in runtime.ledger.batches.find(limit=None)
        for row in segment_rows(runtime, batch.batch_id)
        if row["target"] == "crm"
    ]
    assert sum(duration > 2_000 for duration in durations) >= 10, "that is what the clock says of them"
    assert runtime.ledger.targets.statuses() == {}
    assert Counter(request["webhook_id"] for request in sending.requests()).most_common(1)[0][1] == 1
