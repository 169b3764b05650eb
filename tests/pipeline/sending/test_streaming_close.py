"""Closing a batch: events continue in the next one, and the batch is reconciled even if the committer fails."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

import psutil
import pytest
from pipeline.delivering import RUNNER, Sending, http, rules, segment_rows
from pipeline.streaming_tasks import (
    a_close_that_waits,
    a_process,
    a_streaming_task,
    crm_requests,
    ids,
    quick_batches,
    until,
)

from eventbridge import fault_points
from eventbridge.errors import BusError, StoreError
from eventbridge.policy.chunking import PoolSlots
from eventbridge.repair.audit import audit
from eventbridge.runtime.stop import Stop
from eventbridge.streaming import committer
from eventbridge.streaming import open_batch as streaming_batch
from eventbridge.streaming.committer import Committer
from eventbridge.streaming.lease import Bounds

#: Run first in a process, it never ends a close.
_CLOSES_FOR_EVER = """
import threading, time
from eventbridge import fault_points
fault_points.install(
    lambda point: time.sleep(600) if point == "bus.read" and threading.current_thread().name == "close" else None
)
"""


def _while_reconciling(point: str) -> bool:
    return point == "bus.read" and threading.current_thread().name == "close"


def _recorded(sending: Sending) -> int:
    """Return how many outcomes segments show."""
    return sum(len(segment_rows(sending.runtime, batch.batch_id)) for batch in sending.runtime.ledger.batches.find())


def test_events_are_delivered_while_a_batch_is_closed(sending: Sending) -> None:
    """They are the next batch's, which is recorded, and is the runner's once the former is committed."""
    quick_batches(sending, crm="/healthy/crm")
    with a_close_that_waits(_while_reconciling) as (closes, resume), a_streaming_task(sending):
        sending.publish(30)
        until(closes.is_set)
        sending.publish(12)
        until(lambda: len(sending.requests()) == 42)
        batch, former = sending.runtime.ledger.batches.find()
        assert (batch.state, batch.follows) == ("open", former.batch_id)
        resume.set()
        until(lambda: sending.runtime.ledger.batches.unfinished(RUNNER) == replace(batch, follows=None))
        sending.publish(1)
        until(lambda: len(sending.requests()) == 43)

    assert {batch.state for batch in sending.runtime.ledger.batches.find()} == {"committed"}
    assert set(ids(sending).values()) == {1}
    *former, last = (each["connection"] for each in sending.requests())
    assert last in former[:30], "connections stay open from batch to batch"
    assert audit(sending.runtime).differences == ()


def test_a_batch_that_is_full_continues_while_the_former_is_closed(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To end it would be to wait for that close, and to deliver nothing until then."""
    monkeypatch.setattr(streaming_batch, "_BATCH_EVENTS", 40)
    quick_batches(sending, crm="/healthy/crm")
    with a_close_that_waits() as (closes, resume), a_streaming_task(sending):
        sending.publish(40)
        until(closes.is_set)
        sending.publish(45)
        until(lambda: len(sending.requests()) == 85)
        sending.publish(5)
        until(lambda: len(sending.requests()) == 90)
        resume.set()

    assert [batch.state for batch in sending.runtime.ledger.batches.find()] == ["committed"] * 2
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_rules_that_change_while_a_batch_is_closed_hold_from_the_next_but_one_on(sending: Sending) -> None:
    """What came meanwhile was delivered by those that its batch began with, and nothing comes twice."""
    quick_batches(sending, crm="/healthy/crm")
    with a_close_that_waits() as (closes, resume), a_streaming_task(sending):
        sending.publish(30)
        until(closes.is_set)
        sending.publish(12)
        until(lambda: len(sending.requests()) == 42)
        quick_batches(sending, crm="/healthy/crm", erp="/healthy/erp")
        resume.set()
        until(lambda: len(sending.runtime.ledger.batches.find(state="committed")) == 2)
        sending.publish(5)
        until(lambda: len(sending.requests()) == 42 + 10)

    paths = Counter(each["path"].rpartition("/")[2] for each in sending.requests())
    assert paths == {"crm": 47, "erp": 5}
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_a_kill_in_the_middle_of_a_close_repeats_nothing_that_a_segment_shows(sending: Sending) -> None:
    """What was delivered meanwhile is recorded as it is at any other time: both batches are finished in stages."""
    quick_batches(sending, crm="/healthy/crm")
    with a_process(sending, _CLOSES_FOR_EVER, EVENTBRIDGE_SEGMENT_RESPONSES="1") as child:
        sending.publish(30)
        until(lambda: len(sending.runtime.ledger.batches.find()) == 2)
        sending.publish(12)
        until(lambda: _recorded(sending) == 42)
        child.kill()
        child.wait()
    with a_streaming_task(sending, opens=False):
        until(lambda: len(sending.runtime.ledger.batches.find(state="committed")) == 2)

    assert [batch.state for batch in sending.runtime.ledger.batches.find()] == ["committed"] * 2
    assert len(ids(sending)) == len(sending.requests()) == 42
    assert audit(sending.runtime).differences == ()


def test_the_next_batch_begins_while_a_target_of_the_former_hangs(sending: Sending) -> None:
    """Its neighbours' deliveries continue, and what it has no response to is not sent again."""
    quick_batches(sending, hanging=http("/hang/hanging", timeout='"20s"'), crm="/healthy/crm")
    with a_streaming_task(sending, at_once=True):
        for number in range(1, 5):
            sending.publish(15)
            until(lambda number=number: len(crm_requests(sending)) == 15 * number)
            if number % 2 == 0:
                until(lambda number=number: len(sending.runtime.ledger.batches.find()) > number // 2)

    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_a_target_that_hangs_in_the_former_batch_has_one_run(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the next batch has for it waits until the former gave up: its limits hold for both together."""
    monkeypatch.setattr(streaming_batch, "_SENDING_SECONDS", 6.0)
    hanging = http("/hang/hanging", timeout='"20s"', max_in_flight=1)
    quick_batches(sending, hanging=hanging, crm="/healthy/crm")
    with a_streaming_task(sending, at_once=True):
        began = time.monotonic()
        count = 0
        while time.monotonic() - began < 2:  # a batch lasts for one
            count += 1
            sending.publish(1)
            until(lambda count=count: len(crm_requests(sending)) == count)
        assert [batch.state for batch in sending.runtime.ledger.batches.find()] == ["open"] * 2, "the former is closed"
        assert len(sending.requests()) == count + 1
        monkeypatch.setattr(streaming_batch, "_SENDING_SECONDS", 0.5)

    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_responses_of_a_slow_target_are_waited_for(sending: Sending) -> None:
    """As long as it responds: what was on its way at the end of the batch is not broken off, to be sent again."""
    quick_batches(sending, crm=http("/delay/1400", timeout='"20s"', max_in_flight=100))
    ledger = sending.runtime.ledger
    with a_streaming_task(sending):
        (first,) = ledger.batches.find(state="open")
        while len(ledger.batches.find()) == 1:
            sending.publish(1)
            threading.Event().wait(0.05)
        until(lambda: ledger.batches.get(first.batch_id).state == "committed")

    assert {row["reason"] for row in segment_rows(sending.runtime, first.batch_id)} == {None}
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


@pytest.mark.parametrize("what", ["bus.read", "store.put"])
def test_a_temporary_failure_of_the_close_repeats_no_response(sending: Sending, what: str) -> None:
    """The bus, which ends the batch, or the store, as its segment is written: each response is recorded then."""
    sending.rules(crm=http("/healthy/crm", timeout='"20s"'))
    failures = iter([StoreError("the disk is away") if what == "store.put" else BusError("the bus is away")])
    try:
        with a_streaming_task(sending):
            sending.publish(5)
            until(lambda: len(sending.requests()) == 5)
            loop = next(thread for thread in threading.enumerate() if thread.name == "streaming task under test")

            def fail_once(point: str) -> None:
                if point.startswith(what) and threading.current_thread() is loop and (error := next(failures, None)):
                    raise error

            fault_points.install(fail_once)
            sending.publish(5)
            until(lambda: len(ids(sending)) == 10)
    finally:
        fault_points.install(None)

    assert next(failures, None) is None
    assert sending.runtime.ledger.pending.counts() == [], "what is not recorded would be sent again"
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_slots_bound_how_many_targets_of_a_pool_are_sent_to(sending: Sending) -> None:
    """They take turns: with one slot no request of one begins before that of another gets a response."""
    targets = {name: http(f"/slow/{name}", max_in_flight=1) for name in "abc"}
    sending.write(rules(targets, concurrency="1"))
    pools = {"eventbridge.rule.orders": PoolSlots(slots=1, free=0)}
    with a_streaming_task(sending, bounds=Bounds(pools=lambda: pools)):
        sending.publish(1)
        sending.publish(1)
        until(lambda: len(sending.requests()) == 6)

    times = sorted(datetime.fromisoformat(each["at"]) for each in sending.requests())
    assert min((later - one).total_seconds() for one, later in pairwise(times)) > 0.15, "each takes 0.2 s"
    assert audit(sending.runtime).differences == ()


def committers(pid: int) -> list[psutil.Process]:
    """Return the committers among the children of a process; a child that ends meanwhile is none."""
    found = []
    for child in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            if "committer" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_a_committer_that_is_killed_loses_nothing_and_dies_with_its_streaming_task(sending: Sending) -> None:
    """The streaming task reconciles those itself, sends nothing twice, and has another committer for the next."""
    quick_batches(sending, crm="/healthy/crm")
    with a_process(sending) as child:
        sending.publish(160)
        until(lambda: committers(child.pid))
        (first,) = committers(child.pid)
        first.kill()
        until(lambda: len(sending.runtime.ledger.batches.find(state="committed")) == 1, 60)
        sending.publish(160)
        until(lambda: committers(child.pid))
        (second,) = committers(child.pid)
        until(lambda: len(sending.runtime.ledger.batches.find(state="committed")) == 2, 60)

    psutil.wait_procs([second], timeout=10)
    assert not second.is_running()
    assert second != first
    assert set(ids(sending).values()) == {1}
    assert len(ids(sending)) == 320
    assert audit(sending.runtime).differences == ()


def test_a_committer_lets_events_go_before_it_from_its_beginning(sending: Sending) -> None:
    """To import what it needs takes seconds of CPU time, at the priority of reconciliation; signals are not for it
    meanwhile.
    """
    started = Committer(sending.runtime.settings, Stop())
    before = committers(os.getpid())
    started.start()
    try:
        until(lambda: [each for each in committers(os.getpid()) if each not in before])
        (process,) = (each for each in committers(os.getpid()) if each not in before)
        until(lambda: process.nice() == os.nice(0) + 5)
        assert not any("llvmlite" in each.path for each in process.memory_maps()), "it has imported nothing yet"
    finally:
        started.close()


def test_a_committer_that_hangs_is_abandoned(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciliation is left to its requester, its process is ended, and for a while there is no other."""
    sending.rules(crm="/healthy/crm")
    sending.publish(1)
    batch_id = sending.deliver_batch()
    assert batch_id is not None
    monkeypatch.setattr(committer, "_RESPONSE_TIMEOUT_SECONDS", 0.05)  # its process takes longer to start
    before = committers(os.getpid())

    given_up = Committer(sending.runtime.settings, Stop())
    assert not given_up.reconcile(batch_id, None)
    monkeypatch.setattr(committer, "_RESPONSE_TIMEOUT_SECONDS", 60.0)
    assert not given_up.reconcile(batch_id, None)
    given_up.start()

    assert [each for each in committers(os.getpid()) if each not in before] == []


def test_a_streaming_task_that_is_to_stop_does_not_wait_for_its_committer(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the committer takes most of a minute to start; the streaming task's own process is idle by
    then.
    """
    sending.rules(crm="/healthy/crm")
    sending.publish(1)
    batch_id = sending.deliver_batch()
    assert batch_id is not None
    monkeypatch.setattr(committer, "_STOPPED_SECONDS", 0.05)
    before = committers(os.getpid())
    stop = Stop()
    left = Committer(sending.runtime.settings, stop)
    asks_to_stop = threading.Timer(0.05, stop.set)
    asks_to_stop.start()

    assert not left.reconcile(batch_id, None)
    asks_to_stop.join()
    assert not left.reconcile(batch_id, None)
    assert [each for each in committers(os.getpid()) if each not in before] == []
