"""If two processes deliver a runner's events, no chunk is sent by both, and each request is recorded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.delivering import RUNNER, Sending, http, segment_rows
from pipeline.streaming_tasks import ids, until

from eventbridge.event.ids import delivery_id_text
from eventbridge.repair.audit import audit

#: Delivers in stages until idle, as the command does with a Spark of its own.
_IN_STAGES = f"""
import logging, os
from datetime import UTC, datetime
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.routing.task import InProcessRouter
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.runtime.open import open_runtime

logging.basicConfig(level=logging.WARNING)
runtime = open_runtime(
    Settings.from_mapping(os.environ), connections_from_environment(os.environ), lambda: datetime.now(UTC)
)
deliver_until_idle(runtime, {RUNNER!r}, InProcessRouter(runtime.store))
"""
_TAKE_OVER = f"""
import sys
from eventbridge.cli import main
sys.argv[1:] = ["deliver", "--runner", {RUNNER!r}, "--streaming", "--take-over"]
sys.exit(main())
"""
_SECONDS = 120


@contextmanager
def _process(sending: Sending, code: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run code in a separate process, on the installation of the test."""
    own = {
        "EVENTBRIDGE_HOME": str(sending.site.folder),
        "EVENTBRIDGE_FILE_TARGET_FOLDERS": str(sending.site.folder),
        "EVENTBRIDGE_RULES_FOLDER": str(sending.site.folder / "rules"),
    }
    environ = os.environ | sending.site.environ | own
    child = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _recorded(sending: Sending) -> Counter[str]:
    """Return how many attempts of each delivery are on record as sent."""
    rows = (
        row
        for batch in sending.runtime.ledger.batches.find(limit=None)
        for row in segment_rows(sending.runtime, batch.batch_id)
    )
    return Counter(delivery_id_text(row["delivery_id"]) for row in rows if row["sent"])


def test_two_processes_in_stages_send_no_chunk_twice(sending: Sending) -> None:
    """As on two hosts with one ledger, or beside a DAG: the second waits for the pushes of the first."""
    sending.begin(60, crm=http("/delay/200", max_in_flight=4, timeout="10s"))
    with _process(sending, _IN_STAGES) as first, _process(sending, _IN_STAGES) as second:
        assert (first.wait(_SECONDS), second.wait(_SECONDS)) == (0, 0)

    assert set(ids(sending).values()) == {1}
    assert len(ids(sending)) == 60
    assert _recorded(sending) == ids(sending)
    assert audit(sending.runtime).differences == ()


def test_a_streaming_task_that_takes_over_from_stages_waits_for_what_they_send(sending: Sending) -> None:
    """It delivers later events, no event is sent by both, and nothing is pending."""
    sending.begin(96, crm=http("/delay/500", max_in_flight=4, timeout="10s"))
    ledger = sending.runtime.ledger
    with _process(sending, _IN_STAGES) as first:
        until(sending.requests)
        with _process(sending, _TAKE_OVER) as second:
            until(lambda: ledger.streaming.lease(RUNNER))
            assert len(sending.requests()) < 96, "the first process is still sending"
            assert first.wait(_SECONDS) == 0
            sending.publish(1)
            until(lambda: len(ids(sending)) == 97)
            second.send_signal(signal.SIGTERM)
            _, said = second.communicate(timeout=_SECONDS)

    assert set(ids(sending).values()) == {1}
    assert _recorded(sending) == ids(sending)
    assert sum(row.count for row in ledger.pending.counts()) == 0
    sender = f"{socket.gethostname()}:{first.pid}"
    assert f"is being sent by {sender}: the chunks in progress are finished there" in said.decode()
    assert audit(sending.runtime).differences == ()


def test_a_process_that_stood_still_records_what_it_had_in_flight(sending: Sending) -> None:
    """Another one has taken its chunk over after six seconds; each request of both is on record as sent."""
    sending.begin(40, crm=http("/delay/1000", max_in_flight=4, timeout="10s"))
    (runtime, ledger) = (sending.runtime, sending.runtime.ledger)
    with _process(sending, _IN_STAGES) as first:
        until(sending.requests)
        os.kill(first.pid, signal.SIGSTOP)
        (batch,) = ledger.batches.find()
        with _process(sending, _IN_STAGES) as second:
            until(lambda: ledger.chunks.get(batch.batch_id, 0).claim == 2)
            os.kill(first.pid, signal.SIGCONT)
            assert (first.wait(_SECONDS), second.wait(_SECONDS)) == (0, 0)

    assert len(ids(sending)) == 40
    assert set(ids(sending).values()) == {1, 2}
    assert _recorded(sending) == ids(sending)
    assert audit(runtime).differences == ()


def test_a_streaming_task_says_how_many_deliveries_it_leaves_pending(sending: Sending) -> None:
    """A script that reads only the last lines learns that some deliveries are pending."""
    sending.begin(
        crm=http(
            "/status/503", retry="{policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}"
        )
    )
    with _process(sending, _TAKE_OVER) as process:
        until(lambda: sending.runtime.ledger.batches.find(state="open"))
        sending.publish(3)
        until(lambda: len(sending.requests()) == 3)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=_SECONDS)

    assert process.returncode == 143
    assert out.decode().splitlines() == [
        "3 events of runner orders in 1 batch committed. Later events wait for the next process.",
        "3 deliveries are pending; a later run sends those that are due.",
    ]
