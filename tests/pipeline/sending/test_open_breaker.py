"""A failing target's breaker opens, its other deliveries wait in the slow lane, and probes detect its recovery."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pipeline.delivering import REFUSED, RUNNER, RunningClock, Sending, http, segment_rows, settled

from eventbridge.control.overrides import enable_target
from eventbridge.delivery.push import push
from eventbridge.model.rule_state import TargetStatus
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import next_due_at
from eventbridge.pipeline.retry.plan import plan_retries
from eventbridge.policy.breaker import Count, Tally
from eventbridge.repair.audit import audit

#: Tried again for a long time, an hour apart.
PATIENT = "{policy: custom, max_retries: 1000, initial_delay: 1h, multiplier: 1, max_delay: 1h}"


def standing(sending: Sending, target: str = "crm") -> TargetStatus:
    """Return the status of a target."""
    return sending.runtime.ledger.targets.statuses()["orders", target]


def test_a_push_stops_sending_to_a_target_that_fails_and_leaves_the_rest(sending: Sending) -> None:
    """Ten failures are enough: what was not sent has no attempt and waits in the slow lane; everything is
    reconciled.
    """
    batch = sending.routed(200, crm=http(REFUSED, max_in_flight=4), note="/healthy/note")
    runtime = sending.runtime

    sending.push(batch)
    sending.settle(batch)

    attempts = [row for row in segment_rows(runtime, batch.batch_id) if row["target"] == "crm"]
    rows = settled(runtime, batch.batch_id)["crm"]
    assert 10 <= len(attempts) <= 13
    assert standing(sending).state == "degraded"
    assert {row.status for row in rows} == {"retry_scheduled", "unknown"}
    assert {row.attempts for row in rows if row.status == "unknown"} == {0}
    assert {row.lane for row in rows} == {"slow"}
    assert sum(request["path"] == "/healthy/note" for request in sending.requests()) == 200
    assert commit(runtime, batch.batch_id)
    assert audit(runtime).differences == ()


def test_while_it_is_open_nothing_is_sent_and_afterwards_one_probe(sending: Sending, clock: RunningClock) -> None:
    """Neither new deliveries nor pending ones; a failed probe opens it for another 30 s; idle is idle meanwhile."""
    runtime = sending.begin(50, crm=http(REFUSED, max_in_flight=1))
    sending.deliver()
    opened = standing(sending)
    sending.publish(20)
    sending.rules(crm="/status/503")
    sending.deliver()
    assert sending.requests() == [], "new deliveries are pending at once"
    assert next_due_at(runtime, RUNNER) == opened.until

    clock.advance(31)
    sending.deliver()

    probed = standing(sending)
    assert len(sending.requests()) == 1
    assert (probed.state, probed.since, probed.reason) == ("degraded", opened.since, "a probe failed")
    assert probed.until is not None
    assert opened.until is not None
    assert probed.until > opened.until
    assert audit(runtime).differences == ()


def test_a_target_that_heals_comes_back_by_itself(sending: Sending, clock: RunningClock) -> None:
    """The probes are good, what waited is delivered, and new deliveries are pushed again."""
    runtime = sending.begin(50, crm=http(REFUSED, max_in_flight=1))
    sending.deliver()
    sending.rules(crm="/healthy/crm")
    clock.advance(2 * 3600)

    sending.deliver()

    assert standing(sending).state == "ok"
    assert standing(sending).reason == "5 probes were good"
    sending.publish(7)
    batch_id = sending.deliver_batch()
    assert batch_id is not None
    assert [chunk.handed_out for chunk in runtime.ledger.chunks.list_for_batch(batch_id)] == [True]
    sending.deliver()
    assert audit(runtime).deliveries["orders/crm"] == {"matched": 57, "delivered": 57, "dead_lettered": 0, "pending": 0}
    assert len({request["webhook_id"] for request in sending.requests()}) == 57


def test_a_failed_probe_leaves_what_it_was_taken_with(sending: Sending, clock: RunningClock) -> None:
    """Probing hundreds of pending deliveries costs one attempt; the others keep their number of attempts."""
    runtime = sending.begin(300, crm=http(REFUSED, max_in_flight=1, retry=PATIENT))
    sending.deliver()
    tried = sum(row.attempts * row.count for row in runtime.ledger.pending.find(state="scheduled"))

    for _ in range(3):
        clock.advance(31)
        assert sending.retry() is not None

    waiting = runtime.ledger.pending.find(state="scheduled")
    assert sum(row.attempts * row.count for row in waiting) == tried + 3
    assert sum(row.count for row in waiting) == 300
    assert max(len(row.lineage) for row in waiting if row.attempts == 0) == 0, "these are untried"
    assert audit(runtime).differences == ()


def test_a_target_that_takes_at_the_third_try_is_not_down(sending: Sending) -> None:
    """Two of three attempts fail, in bursts: its push tries again by itself, and the breaker stays closed."""
    policy = "{policy: custom, max_retries: 5, initial_delay: 100ms, multiplier: 1, max_delay: 100ms}"
    runtime = sending.begin(100, crm=http("/flaky/in-bursts", retry=policy))

    sending.deliver_batch(idle_seconds=6)

    assert standing(sending).state == "ok"
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 100


def test_a_breaker_opened_by_another_push_ends_this_one(sending: Sending) -> None:
    """Two pushes of a target: the breaker that one of them opened stops the other, long before its budget ends."""
    batch = sending.routed(400, crm=http("/slow/crm", max_in_flight=1))
    runtime = sending.runtime
    thread = threading.Thread(target=push, args=(runtime, batch.batch_id, 0))
    thread.start()
    _until(lambda: len(sending.requests()) >= 2)

    second = int(runtime.ledger.now().timestamp())
    runtime.ledger.targets.record_attempts([Tally("orders", "crm", {second: Count(1000, 1000)})])
    thread.join(60)

    assert not thread.is_alive()
    assert len(sending.requests()) < 60
    assert runtime.ledger.chunks.get(batch.batch_id, 0).state == "completed"


def test_a_push_that_was_handed_out_before_leaves_everything(sending: Sending) -> None:
    """Its target's breaker has opened since: new deliveries are no probes, even once probes may go."""
    batch = sending.routed(5, crm="/healthy/crm")
    runtime = sending.runtime
    runtime.ledger.targets.set_status("orders", "crm", "degraded", "others found out")

    sending.push(batch)

    assert sending.requests() == []
    assert segment_rows(runtime, batch.batch_id) == []


def test_of_two_retry_batches_one_probes(sending: Sending, clock: RunningClock) -> None:
    """Both were planned while the target was healthy; one sends, the other leaves its deliveries."""
    runtime = sending.begin(8, settings={"retry_max_per_target": 1, "chunk_max_deliveries": 4}, crm=REFUSED)
    sending.deliver()
    sending.rules(crm="/slow/crm")
    clock.advance(2 * 3600)
    one, other = (plan_retries(runtime, RUNNER).batch_id for _ in range(2))
    assert one is not None
    assert other is not None
    runtime.ledger.targets.set_status("orders", "crm", "degraded", "others found out")
    thread = threading.Thread(target=push, args=(runtime, one, 0))
    thread.start()
    _until(lambda: len(sending.requests()) >= 1)

    report = push(runtime, other, 0)

    thread.join(60)
    assert report.claimed
    assert report.targets == ()
    probes = runtime.ledger.chunks.get(one, 0).rows
    assert len(sending.requests()) == probes
    assert (standing(sending).state, standing(sending).good) == ("half-open", probes)


def test_a_target_that_does_not_settle_half_within_its_budget_is_out_of_the_way(sending: Sending) -> None:
    """It delivers, too slowly: its chunks go one after the other through the slow lane, and none of it is lost."""
    runtime = sending.begin(20, settings={"push_timeout": 1}, crm=http("/slow/crm", max_in_flight=1))
    sending.deliver_batch()
    slow = standing(sending)
    assert (slow.state, slow.slow) == ("degraded", True)
    assert "settled" in slow.reason

    sending.deliver()

    assert standing(sending).slow
    assert audit(runtime).deliveries["orders/crm"]["delivered"] == 20
    assert len(sending.requests()) == len({request["webhook_id"] for request in sending.requests()})


def test_a_target_that_fails_for_a_day_is_disabled_if_its_file_says_so(sending: Sending, clock: RunningClock) -> None:
    """Then its deliveries are on hold until an operator enables it; without the field it would be tried forever."""
    runtime = sending.begin(3, crm=http("/status/503", retry=PATIENT, disable_after="1d"), dead=http(REFUSED))
    sending.deliver()
    clock.advance(23 * 3600)
    sending.retry()
    assert standing(sending).state == "ok"
    assert standing(sending).failing_since is not None
    clock.advance(2 * 3600 - 60)

    sending.publish(1)
    sending.deliver_batch()

    assert standing(sending).state == "disabled"
    assert standing(sending).reason == "every attempt failed for 1.0 days"
    sending.retry()
    assert {row.hold_reason for row in runtime.ledger.pending.find(state="on_hold")} == {"target disabled"}
    sending.rules(crm="/healthy/crm")
    enable_target(runtime, "orders", "crm")
    assert standing(sending).state == "ok"
    sending.deliver()
    assert audit(runtime).differences == ()


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)
