"""Handover: the standby continues where the former streaming task ends, while that closes its last batch."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from pipeline.delivering import RUNNER, Sending, http, segment_rows
from pipeline.streaming_tasks import a_close_that_waits, a_process, a_streaming_task, crm_requests, ids, until

from eventbridge.errors import StreamingLeaseTakenError
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.repair.audit import audit
from eventbridge.runtime.stop import Stop
from eventbridge.streaming import lease as streaming_lease
from eventbridge.streaming.lease import Bounds, anything_waits, is_delivered_in_stages
from eventbridge.streaming.task import StreamingSummary, deliver_streaming

_AS_STANDBY = Bounds(idle_seconds=120, is_standby=True, patience_seconds=30)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_lease, "_RENEW_SECONDS", 0.05)


@contextmanager
def a_standby(
    sending: Sending, bounds: Bounds = _AS_STANDBY, stop: Stop | None = None
) -> Iterator[Future[StreamingSummary]]:
    """Be the standby in a thread for the streaming task that there is, and continue with it until the block ends and
    sets `stop`.
    """
    stop = stop or Stop()
    with ThreadPoolExecutor(1) as pool:
        standby = pool.submit(deliver_streaming, sending.site.reopen(), RUNNER, stop, bounds)
        try:
            yield standby
        finally:
            stop.set()
    standby.result()


def holder(sending: Sending) -> str:
    """Return the holder of the lease, "" if there is none."""
    lease = sending.runtime.ledger.streaming.lease(RUNNER)
    return lease.holder if lease is not None else ""


def test_the_standby_delivers_while_the_former_streaming_task_closes_its_batch(sending: Sending) -> None:
    """From where that has read, once; it has a batch of its own when the former one is committed."""
    sending.rules(crm="/healthy/crm")
    first = ""

    def of_former(point: str) -> bool:
        passed = first and point.startswith("store.") and holder(sending) != first
        return bool(passed) and threading.current_thread().name == "streaming task under test"

    with a_close_that_waits(of_former) as (closes, resume), a_streaming_task(sending):
        first = holder(sending)
        sending.publish(5)
        until(lambda: len(sending.requests()) == 5)
        with a_standby(sending):
            until(closes.is_set)
            sending.publish(7)
            until(lambda: len(sending.requests()) == 12)
            assert holder(sending) not in ("", first)
            assert sending.runtime.ledger.batches.find(state="committed") == []
            resume.set()
            until(lambda: sending.runtime.ledger.batches.find(state="open"))
            sending.publish(1)
            until(lambda: len(sending.requests()) == 13)

    assert holder(sending) == ""
    assert [batch.state for batch in sending.runtime.ledger.batches.find()] == ["committed"] * 2
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_a_streaming_task_in_which_nothing_came_is_handed_over_without_a_batch(sending: Sending) -> None:
    """Its batch is dropped, and the next streaming task opens one."""
    sending.rules(crm="/healthy/crm")
    with a_streaming_task(sending):
        first = holder(sending)
        with a_standby(sending):
            until(lambda: holder(sending) not in ("", first))
            sending.publish(2)
            until(lambda: len(sending.requests()) == 2)

    assert [batch.state for batch in sending.runtime.ledger.batches.find()] == ["committed"]
    assert audit(sending.runtime).differences == ()


def test_one_is_the_standby_and_a_second_is_refused(sending: Sending) -> None:
    """As two starts may start two runs: the second ends at once, and the first continues."""
    sending.rules(crm="/healthy/crm")
    ledger = sending.runtime.ledger
    assert ledger.streaming.acquire_lease(RUNNER, "another", ledger.now() + timedelta(seconds=60))
    with a_standby(sending):
        until(lambda: (lease := ledger.streaming.lease(RUNNER)) is not None and lease.next_holder)
        with pytest.raises(StreamingLeaseTakenError):
            deliver_streaming(sending.runtime, RUNNER, Stop(), _AS_STANDBY)
        ledger.streaming.release_lease(RUNNER, "another")
        sending.publish(1)
        until(lambda: len(sending.requests()) == 1)


def test_a_streaming_task_that_dies_is_taken_over_by_the_standby(sending: Sending) -> None:
    """At once, as its process has ended: nothing is lost."""
    sending.rules(crm="/healthy/crm")
    with a_process(sending) as child:
        sending.publish(3)
        until(lambda: len(sending.requests()) == 3)
        os.kill(child.pid, signal.SIGSTOP)  # it does not see the standby
        with a_standby(sending):
            until(lambda: (lease := sending.runtime.ledger.streaming.lease(RUNNER)) is not None and lease.next_holder)
            sending.publish(2)
            child.kill()
            child.wait()
            until(lambda: len(ids(sending)) == 5)

    assert audit(sending.runtime).differences == ()


def test_a_streaming_task_that_dies_over_its_last_batch_leaves_it_to_its_successor(sending: Sending) -> None:
    """That finishes it in stages; what it had sent itself meanwhile does not come twice."""
    sending.rules(hanging=http("/hang/hanging", timeout='"20s"'), crm="/healthy/crm")
    with a_process(sending) as child:
        first = holder(sending)
        sending.publish(3)
        until(lambda: len(crm_requests(sending)) == 3)
        with a_standby(sending):
            until(lambda: holder(sending) not in ("", first))  # the hanging target is waited for
            child.kill()
            child.wait()
            sending.publish(2)
            until(lambda: len(crm_requests(sending)) == 5)
            until(lambda: len(sending.runtime.ledger.batches.find(state="committed")) == 1)
            until(lambda: sending.runtime.ledger.batches.find(state="open"))

    assert len({each["webhook_id"] for each in crm_requests(sending)}) == len(crm_requests(sending)) == 5
    assert audit(sending.runtime).differences == ()


def test_a_standby_that_dies_costs_the_length_of_a_lease(sending: Sending) -> None:
    """There is no handover, the batch is closed, and the next streaming task takes over from the dead one."""
    sending.rules(crm="/healthy/crm")
    ledger = sending.runtime.ledger
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with a_streaming_task(sending):
        sending.publish(2)
        until(lambda: len(sending.requests()) == 2)
        assert ledger.streaming.register_standby(
            RUNNER, f"{socket.gethostname()}:{gone.pid}:cafe", ledger.now() + timedelta(seconds=6)
        )
        until(lambda: sending.runtime.ledger.batches.find(state="committed"))
    with a_streaming_task(sending):
        sending.publish(2)
        until(lambda: len(sending.requests()) == 4)

    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_near_its_end_a_streaming_task_asks_for_the_next_and_waits_for_it_a_while(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a busy machine has time to start one; without a successor it ends by itself."""
    monkeypatch.setattr(streaming_lease, "_LEAD_SECONDS", 0.5)
    sending.rules(crm="/healthy/crm")
    asked = threading.Event()

    def look() -> None:
        until(lambda: (lease := sending.runtime.ledger.streaming.lease(RUNNER)) is not None and lease.wants_next)
        asked.set()

    watcher = threading.Thread(target=look)
    watcher.start()
    deliver_streaming(sending.runtime, RUNNER, Stop(), Bounds(seconds=0.5, requests_standby=True))
    watcher.join()

    assert asked.is_set()
    assert holder(sending) == ""


def test_a_batch_of_the_stages_is_left_to_the_run_beside(sending: Sending) -> None:
    """Its tasks are at work on what a streaming task handed over: a second streaming task begins nothing until they are
    done.
    """
    sending.rules(crm="/healthy/crm")
    sending.publish(1)
    sending.deliver()
    sending.publish(3)
    batch_id = listen(sending.runtime, RUNNER)
    assert batch_id is not None
    assert is_delivered_in_stages(sending.runtime, RUNNER)
    assert anything_waits(sending.runtime, RUNNER)

    beside = Bounds(idle_seconds=5, others_at_work=lambda: True)
    summary = deliver_streaming(sending.runtime, RUNNER, Stop(), beside)

    assert (summary.events, sending.runtime.ledger.batches.get(batch_id).state) == (0, "planned")
    alone = Bounds(idle_seconds=0.3)
    deliver_streaming(sending.runtime, RUNNER, Stop(), alone)
    assert sending.runtime.ledger.batches.get(batch_id).state == "committed"
    assert audit(sending.runtime).differences == ()


def test_a_handover_sends_nothing_twice_to_a_target_that_responds_slowly(sending: Sending) -> None:
    """The streaming task that hands over listens until the timeouts of what it sent are over, though it had no
    response yet.
    """
    sending.rules(crm=http("/delay/4000", timeout="10s", max_in_flight=100))
    with a_streaming_task(sending):
        first = holder(sending)
        sending.publish(20)
        until(lambda: len(sending.requests()) == 20)
        with a_standby(sending):
            until(lambda: holder(sending) not in ("", first))
            sending.publish(20)
            until(lambda: len(sending.requests()) == 40)
            until(lambda: len(sending.runtime.ledger.batches.find(state="committed")) == 1)

    outcomes = [
        (row["outcome"], row["sent"], row["attempt"])
        for batch in sending.runtime.ledger.batches.find()
        for row in segment_rows(sending.runtime, batch.batch_id)
    ]
    assert outcomes == [("delivered", True, 1)] * 40
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


@pytest.mark.parametrize("listens_seconds", [math.inf, 0.5])
def test_a_stop_just_after_the_change_leaves_the_last_batch_to_the_former_streaming_task(
    sending: Sending, listens_seconds: float
) -> None:
    """That one still listens for responses: the new streaming task neither takes its batch over nor sends it again."""
    sending.rules(crm=http("/delay/6000", timeout="10s", max_in_flight=100))
    begun = threading.Event()
    with a_streaming_task(sending):
        sending.publish(20)
        until(lambda: len(sending.requests()) == 20)
        with a_standby(sending, replace(_AS_STANDBY, on_begin=begun.set), Stop(listens_seconds)):
            until(begun.is_set)
        until(lambda: len(sending.runtime.ledger.batches.find(state="committed")) >= 1)

    sending.deliver()
    outcomes = [
        (row["outcome"], row["sent"], row["attempt"])
        for batch in sending.runtime.ledger.batches.find()
        for row in segment_rows(sending.runtime, batch.batch_id)
    ]
    assert outcomes == [("delivered", True, 1)] * 20
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()
