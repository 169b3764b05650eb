"""Takeover of a streaming task, and runs beside one: nothing is lost, and only what no segment shows comes twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pipeline.delivering import RUNNER, RunningClock, Sending, http, rules
from pipeline.streaming_tasks import a_streaming_task, ids, until

from eventbridge.control.consecutive_batches import deliver_replay
from eventbridge.errors import InfrastructureError
from eventbridge.policy.chunking import PoolSlots
from eventbridge.repair.audit import audit
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.stop import Stop
from eventbridge.streaming import task as streaming
from eventbridge.streaming.lease import Bounds
from eventbridge.streaming.task import StreamingSummary, deliver_streaming

#: Batches so short that a test sees the next one.
SHORT = "runners: {orders: {mode: streaming, streaming: {batch_interval: 1s}}}\n"


def test_if_two_start_one_delivers_and_the_other_continues(sending: Sending) -> None:
    """As two runs of a DAG: the second waits, takes the lease when the first ends, and nothing comes twice."""
    sending.rules(crm="/healthy/crm")

    def run(seconds: float) -> StreamingSummary:
        bounds = Bounds(seconds=seconds, idle_seconds=60, patience_seconds=60)
        return deliver_streaming(sending.site.reopen(), RUNNER, Stop(), bounds)

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run, 2.0), pool.submit(run, 2.0)]
        while not all(each.done() for each in both):
            sending.publish(1)
            threading.Event().wait(0.05)
        summaries = [each.result() for each in both]
    sending.deliver()

    assert all(summary.events for summary in summaries)
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_a_lease_that_is_lost_in_the_midst_of_a_push_loses_nothing(sending: Sending, clock: RunningClock) -> None:
    """What was responded to is recorded or comes again, what hangs waits; the process says that it lost its lease."""
    sending.rules(hanging=http("/hang/hanging", timeout='"20s"'), crm="/healthy/crm")
    ledger = sending.runtime.ledger

    def steal() -> None:
        until(lambda: ledger.batches.find(state="open"))
        sending.publish(6)
        until(lambda: len(sending.requests()) >= 7)  # some of the hanging target are in flight
        lease = ledger.streaming.lease(RUNNER)
        assert lease is not None
        (batch,) = ledger.batches.find(state="open")
        ledger.streaming.release_lease(RUNNER, lease.holder)
        assert ledger.streaming.acquire_lease(RUNNER, "another", ledger.now() + timedelta(seconds=30))
        ledger.batches.move(batch.batch_id, "open", "planned")

    thief = threading.Thread(target=steal)
    thief.start()
    with pytest.raises(InfrastructureError, match="another process has taken the lease"):
        deliver_streaming(sending.runtime, RUNNER, Stop())
    thief.join()
    clock.advance(40)
    sending.rules(hanging="/healthy/hanging", crm="/healthy/crm")
    sending.deliver()
    clock.advance(2 * 3600)
    sending.deliver()

    received = Counter((each["path"], each["webhook_id"]) for each in sending.requests())
    assert sum(path == "/healthy/crm" for path, _ in received) == 6
    assert audit(sending.runtime).differences == ()


def test_a_replay_continues_beside_a_streaming_task(sending: Sending) -> None:
    """Both deliver, each its own deliveries."""
    sending.rules(crm="/healthy/crm")
    sending.publish(5)
    sending.deliver()
    runtime = sending.site.reopen()
    with a_streaming_task(sending):
        sending.publish(3)
        request = WrittenReplayRequest("orders", since="1h").read(runtime.ledger.now(), runtime.rule_set())
        replay = begin_replay(runtime, request, "again")
        deliver_replay(runtime, replay.replay_id, InProcessRouter(runtime.store))
        sending.publish(3)
        until(lambda: len(ids(sending)) >= 16)

    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_a_pool_that_gets_slots_again_is_delivered_from_the_next_batch_on(sending: Sending) -> None:
    """As the streaming task looks at the pools beside: what was on hold before is the retries'."""
    sending.write(SHORT + rules({"crm": "/healthy/crm"}))
    (rule,) = sending.runtime.rule_set().rules.values()
    pools = {rule.pool_name: PoolSlots(slots=0, free=0)}
    look: Callable[[], Any] = lambda: dict(pools)  # noqa: E731
    stop = Stop()
    thread = threading.Thread(target=deliver_streaming, args=(sending.runtime, RUNNER, stop, Bounds(pools=look)))
    thread.start()
    try:
        sending.publish(2)
        until(lambda: sum(row.count for row in sending.runtime.ledger.pending.counts()) == 2)
        assert sending.requests() == []
        pools[rule.pool_name] = PoolSlots(slots=4, free=4)

        def goes() -> bool:
            sending.publish(1)
            threading.Event().wait(0.2)
            return bool(sending.requests())

        until(goes)
    finally:
        stop.set()
        thread.join()
    assert audit(sending.runtime).differences == ()


def test_an_empty_batch_dropped_by_its_former_task_is_opened_again(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stood still and wakes between listening and looking changes nothing: the streaming task continues."""
    listen, dropped = streaming.listen, []

    def listen_and_drop(runtime: Any, runner: str, *, holder: str) -> str | None:
        batch_id = listen(runtime, runner, holder=holder)
        if batch_id is not None and not dropped:
            dropped.append(runtime.ledger.streaming.drop(batch_id))
        return batch_id

    monkeypatch.setattr(streaming, "listen", listen_and_drop)
    sending.rules(crm="/healthy/crm")
    with a_streaming_task(sending):
        sending.publish(1)
        until(lambda: len(sending.requests()) == 1)

    assert dropped == [True]
    assert audit(sending.runtime).differences == ()
