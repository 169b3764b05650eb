"""Streaming mode: events are delivered as they arrive, and its batches are reconciled whichever process dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, http, rules, segment_rows
from pipeline.streaming_tasks import a_process, a_streaming_task, crm_requests, ids, until

from eventbridge import fault_points
from eventbridge.control.publish import BusWatch
from eventbridge.errors import BusError, InfrastructureError, UserError
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.route.budgeted_rules import PENDING_MAX
from eventbridge.policy.chunking import PoolSlots
from eventbridge.repair.audit import audit
from eventbridge.routing.warm_up import compile_ahead
from eventbridge.runtime.stop import Stop
from eventbridge.sources.embedded import bus
from eventbridge.streaming import open_batch
from eventbridge.streaming.lease import Bounds
from eventbridge.streaming.open_batch import write_open_segment
from eventbridge.streaming.task import deliver_streaming


def test_events_are_delivered_as_they_come(sending: Sending) -> None:
    """Each before the next is published, once, without a batch of its own; at the end all is committed and reconciled.

    How soon they are is for `make bench-streaming` to say. A target whose address is inside is connected to by none.
    """
    sending.rules(crm="/healthy/crm", inside=http("http://169.254.169.254/latest/meta-data"))
    with a_streaming_task(sending):
        for number in range(1, 21):
            sending.publish(1)
            until(lambda number=number: len(sending.requests()) == number)
        with pytest.raises(InfrastructureError, match="another process is delivering the events of runner 'orders'"):
            deliver_streaming(sending.runtime, RUNNER, Stop())

    assert len(sending.runtime.ledger.batches.find()) < 20, "a batch for each is what the stages would do"
    assert {batch.state for batch in sending.runtime.ledger.batches.find()} == {"committed"}
    assert sending.runtime.ledger.streaming.lease(RUNNER) is None
    assert set(ids(sending).values()) == {1}
    refused = [
        row["error"]
        for batch in sending.runtime.ledger.batches.find()
        for row in segment_rows(sending.runtime, batch.batch_id)
        if row["error_class"] == "AddressRefused"
    ]
    assert refused
    assert all("169.254.169.254" in each for each in refused)
    assert audit(sending.runtime).differences == ()


def test_a_bus_without_change_notices_is_polled(
    sending: Sending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another host writes it, the system reports no change of the file."""
    (tmp_path / "still").touch()
    monkeypatch.setattr(bus, "lock_file", lambda _: tmp_path / "still")
    sending.rules(crm="/healthy/crm")
    with a_streaming_task(sending):
        for number in range(1, 8):
            sending.publish(1)
            until(lambda number=number: len(sending.requests()) == number)

    assert audit(sending.runtime).differences == ()


def test_an_open_batch_in_which_nothing_came_is_dropped(sending: Sending) -> None:
    """Neither in the ledger nor as files: a quiet runner's history is that of its events."""
    sending.rules(crm="/healthy/crm")
    with a_streaming_task(sending):
        pass

    assert sending.runtime.ledger.batches.find() == []
    assert sending.runtime.ledger.streaming.lease(RUNNER) is None


def test_a_failed_delivery_is_pending_and_its_neighbour_continues(sending: Sending) -> None:
    """A refused delivery is tried once in its batch, and lies pending when that is committed."""
    sending.rules(bad="http://127.0.0.1:1/refused", crm="/healthy/crm")
    with a_streaming_task(sending):
        sending.publish(4)
        until(lambda: len(sending.requests()) == 4)

    assert sum(row.count for row in sending.runtime.ledger.pending.counts()) == 4
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_rules_that_it_cannot_deliver_are_refused(sending: Sending) -> None:
    """At the start, with what to do: there is no Spark beside this process."""
    sending.write(rules({"crm": "/healthy/crm"}, where="'data:amount::int > 1'"))

    with pytest.raises(UserError, match="only Spark evaluates: orders"):
        deliver_streaming(sending.runtime, RUNNER, Stop())


def test_a_killed_streaming_task_loses_nothing(sending: Sending, clock: RunningClock) -> None:
    """Batch mode finishes its batch; only what no segment shows comes twice."""
    sending.rules(crm="/healthy/crm")
    with a_process(sending):
        (batch,) = sending.runtime.ledger.batches.find(state="open")
        for _ in range(60):
            sending.publish(5)
        until(lambda: segment_rows(sending.runtime, batch.batch_id))
        sending.publish(5)
    shown = {row["delivery_id"] for row in segment_rows(sending.runtime, batch.batch_id)}
    before = ids(sending)

    clock.advance(10)
    sending.deliver()

    received = ids(sending)
    assert len(received) == 305
    assert shown
    twice = {each for each, count in received.items() if count > 1}
    assert len(twice) <= len(before) - len(shown)
    assert audit(sending.runtime).differences == ()


def test_a_streaming_task_that_stood_still_and_wakes_changes_nothing(sending: Sending, clock: RunningClock) -> None:
    """Another has its runner by then, and finishes its batch: it says so and ends, and nothing is lost."""
    sending.rules(crm="/healthy/crm")
    with a_process(sending) as child:
        (batch,) = sending.runtime.ledger.batches.find(state="open")
        sending.publish(5)
        until(lambda: len(sending.requests()) == 5)
        os.kill(child.pid, signal.SIGSTOP)
        sending.publish(5)
        clock.advance(10)
        with a_streaming_task(sending):
            until(lambda: len(ids(sending)) == 10)
            os.kill(child.pid, signal.SIGCONT)
            _, said = child.communicate(timeout=30)
            sending.publish(5)
            until(lambda: len(ids(sending)) == 15)

    assert b"delivering the events of runner 'orders' as they arrive; Ctrl-C stops it" in said
    assert b"another process has taken the lease of runner 'orders'" in said
    assert child.returncode != 0
    assert sending.runtime.ledger.batches.get(batch.batch_id).state == "committed"
    assert audit(sending.runtime).differences == ()


def test_a_bus_that_fails_for_a_moment_does_not_end_the_streaming_task(sending: Sending) -> None:
    """The batch is closed by the stages, and the next one continues; nothing is lost."""
    sending.rules(crm="/healthy/crm")
    failures = iter(["the bus is away"])

    def fail_once(point: str) -> None:
        if point == "bus.read" and (said := next(failures, None)) is not None:
            raise BusError(said)

    with a_streaming_task(sending):
        fault_points.install(fail_once)
        try:
            sending.publish(3)
            until(lambda: len(sending.requests()) == 3)
        finally:
            fault_points.install(None)

    assert next(failures, None) is None
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_losing_the_lease_is_reported_as_an_error(sending: Sending) -> None:
    """A supervisor sees an error, not a requested end."""
    sending.rules(crm="/healthy/crm")
    ledger = sending.runtime.ledger

    def steal() -> None:
        until(lambda: ledger.batches.find(state="open"))
        lease = ledger.streaming.lease(RUNNER)
        assert lease is not None
        ledger.streaming.release_lease(RUNNER, lease.holder)
        assert ledger.streaming.acquire_lease(RUNNER, "another", ledger.now() + timedelta(seconds=60))

    thief = threading.Thread(target=steal)
    thief.start()
    with pytest.raises(InfrastructureError, match="another process has taken the lease of runner 'orders'"):
        deliver_streaming(sending.runtime, RUNNER, Stop())
    thief.join()


def test_a_streaming_task_is_taken_once_the_matcher_is_compiled(sending: Sending) -> None:
    """It takes most of a minute after a change of the matcher; meanwhile another process may deliver."""
    sending.rules(crm="/healthy/crm")
    ledger = sending.runtime.ledger
    assert ledger.streaming.acquire_lease(RUNNER, "another", ledger.now() + timedelta(seconds=60))
    compile_ahead.cache_clear()

    with pytest.raises(InfrastructureError, match="another process is delivering"):
        deliver_streaming(sending.runtime, RUNNER, Stop())

    assert compile_ahead.cache_info().misses == 1


def test_the_streaming_task_of_an_ended_process_is_ended_at_once(sending: Sending) -> None:
    """On the same host: no task waits for a lease that is not renewed."""
    sending.rules(crm="/healthy/crm")
    sending.publish(3)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    ledger = sending.runtime.ledger
    holder = f"{socket.gethostname()}:{gone.pid}:cafe"
    assert ledger.streaming.acquire_lease(RUNNER, holder, ledger.now() + timedelta(seconds=600))

    with a_streaming_task(sending):
        until(lambda: len(sending.requests()) == 3)

    assert audit(sending.runtime).differences == ()


def test_a_streaming_task_ends_when_nothing_comes(sending: Sending) -> None:
    """Its batch is committed, and the ledger has no streaming task."""
    sending.rules(crm="/healthy/crm")
    sending.publish(3)

    summary = deliver_streaming(sending.runtime, RUNNER, Stop(), Bounds(seconds=60, idle_seconds=0.5))

    assert (summary.events, summary.backlog, len(sending.requests())) == (3, False, 3)
    assert sending.runtime.ledger.streaming.lease(RUNNER) is None
    assert {batch.state for batch in sending.runtime.ledger.batches.find()} == {"committed"}


def test_a_batch_that_takes_too_long_is_left_to_the_stages(sending: Sending) -> None:
    """The streaming task ends at once, says so, and has begun nothing: `listen` plans it as one batch."""
    sending.rules(crm="/healthy/crm")
    sending.publish(1)
    sending.deliver()
    sending.publish(50)

    summary = deliver_streaming(sending.runtime, RUNNER, Stop(), Bounds(backlog_seconds=0.01))

    assert (summary.events, summary.backlog) == (0, True)
    batch_id = listen(sending.runtime, RUNNER)
    assert batch_id is not None
    assert sum(part.end - part.start for part in sending.runtime.ledger.batches.ranges(batch_id)) == 50


def test_a_pool_without_slots_holds_its_rules_deliveries(sending: Sending) -> None:
    """Nothing is sent, the batch is committed, and they wait until the pool has slots again."""
    sending.rules(crm="/healthy/crm")
    sending.publish(2)
    (rule,) = sending.runtime.rule_set().rules.values()
    pools = {rule.pool_name: PoolSlots(slots=0, free=0)}

    deliver_streaming(sending.runtime, RUNNER, Stop(), Bounds(idle_seconds=0.5, pools=lambda: pools))

    assert sending.requests() == []
    assert sum(row.count for row in sending.runtime.ledger.pending.counts()) == 2
    assert audit(sending.runtime).differences == ()


def test_a_target_that_hangs_holds_no_neighbour_from_its_first_second_on(sending: Sending) -> None:
    """Reads and segments continue; what has no response is deferred until it can have none, and is not sent twice."""
    sending.rules(hanging=http("/hang/hanging", timeout='"20s"', max_in_flight=3), crm="/healthy/crm")

    def received(target: str) -> int:
        return sum(each["path"].endswith(target) for each in sending.requests())

    with a_streaming_task(sending, at_once=True):
        (batch,) = sending.runtime.ledger.batches.find(state="open")
        for number in range(1, 11):
            sending.publish(1)
            until(lambda number=number: received("crm") == number)
        until(lambda: segment_rows(sending.runtime, batch.batch_id))
        assert sending.runtime.ledger.batches.get(batch.batch_id).state == "open"
        assert received("hanging") == 3, "it has no more in flight at a time, and none of them is over"
        stopped_at = sending.runtime.clock()

    assert received("crm") == 10
    assert set(ids(sending).values()) == {1}
    pending = sending.runtime.ledger.pending.counts()
    assert sum(row.count for row in pending) == 10
    interrupted = [row for row in segment_rows(sending.runtime, batch.batch_id) if row["reason"] == "Interrupted"]
    assert [row["due_at"] > stopped_at + timedelta(seconds=15) for row in interrupted] == [True] * 3
    assert audit(sending.runtime).differences == ()


def test_responses_whose_segment_fails_once_are_recorded_and_not_sent_again(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next segment has them: without their outcomes, the deliveries would be sent twice."""
    failed: list[int] = []

    def write_once_broken(*given: Any) -> bool:
        rows = given[4].num_rows
        if rows and not failed:
            failed.append(rows)
            raise InfrastructureError("the store fails once")
        return write_open_segment(*given)

    monkeypatch.setattr(open_batch, "write_open_segment", write_once_broken)
    sending.begin(settings={"segment_interval": 60}, crm="/healthy/crm")  # so the only segment is the last one
    with a_streaming_task(sending):
        sending.publish(5)
        until(lambda: len(sending.requests()) == 5)
    sending.site.clock.advance(60)
    sending.deliver()

    assert failed
    assert set(ids(sending).values()) == {1}
    assert audit(sending.runtime).differences == ()


def test_a_retry_that_is_due_soon_is_made_in_the_batch(sending: Sending) -> None:
    """It holds nothing that comes after it; nothing of it is pending."""
    soon = "{policy: custom, max_retries: 3, initial_delay: 1s, multiplier: 1, max_delay: 1s, jitter: 0}"
    sending.rules(flaky=http("/flaky/flaky", retry=soon), crm="/healthy/crm")
    with a_streaming_task(sending):
        sending.publish(2)
        until(lambda: len(sending.requests()) == 4)
        sending.publish(1)
        until(lambda: len(crm_requests(sending)) == 3)
        until(lambda: len(sending.requests()) == 12)
        assert [batch.state for batch in sending.runtime.ledger.batches.find()] == ["open"]

    assert sending.runtime.ledger.pending.counts() == []
    assert audit(sending.runtime).differences == ()


def test_a_rate_is_kept_in_a_batch(sending: Sending) -> None:
    """What has no token yet waits for one, and is not left to the retries."""
    sending.rules(crm=http("/healthy/crm", rate="20/s"))
    with a_streaming_task(sending):
        began = time.monotonic()
        for _ in range(4):
            sending.publish(15)
        until(lambda: len(sending.requests()) == 60)
        took = time.monotonic() - began

    assert took > 1.5
    assert sending.runtime.ledger.pending.counts() == []
    assert audit(sending.runtime).differences == ()


def test_a_streaming_task_keeps_to_the_quotas_of_an_owner(sending: Sending) -> None:
    """What its rules match beyond what may wait is deferred; with its store full no batch opens until there is room.

    The rules of others continue, the API returns that the bus takes nothing, and everything is reconciled.
    """
    others = f"  others: {{owner: b, bus: orders, pattern: {{}}, targets: {{log: {http('/healthy/others')}}}}}\n"

    def write(stored: str) -> None:
        text = rules({"crm": REFUSED}, owner="shop").replace("  orders:\n", "  orders:\n    owner: shop\n", 1)
        sending.write(f"owners: {{shop: {{pending: {{max: 3}}, stored: {stored}}}}}\n{text}{others}")

    write("1GiB")
    for count, reported in ((3, 3), (5, 8)):
        with a_streaming_task(sending):
            sending.publish(count)
            until(lambda reported=reported: len(sending.requests()) == reported)
    waiting = [(each.rule, each.reason, each.count) for each in sending.runtime.ledger.deferred_matches.waiting()]

    assert sending.runtime.ledger.pending.counts_by_rule() == {"orders": 3}
    assert waiting == [("orders", PENDING_MAX, 5)]

    write("1KiB")
    sending.publish(1)
    with a_streaming_task(sending, opens=False):
        rule_set = sending.runtime.rule_set()
        look = BusWatch(sending.runtime, rule_set.buses["orders"]).load([RUNNER], rule_set)
        between = (sending.runtime.ledger.batches.find(state="open"), len(sending.requests()))
        write("1GiB")
        until(lambda: len(sending.requests()) == 9)

    assert "the owner's quota is 1,024" in look.owner_full
    assert between == ([], 8)
    assert audit(sending.runtime).differences == ()
