"""The target type `queue`: deliveries wait for consumers, who receive, extend, release and acknowledge them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pipeline.delivering import RUNNER, RunningClock, Sending, segment_rows, settled

from eventbridge.control.overrides import operate
from eventbridge.control.queues import Receipts, acknowledge, extend, receive, release
from eventbridge.model.queue import ReceivedDelivery
from eventbridge.repair.audit import audit
from eventbridge.views.queues import queue_statuses
from eventbridge.views.trace.explain import why_between

RETRIES = "retry: {policy: custom, max_retries: 1, initial_delay: 5s, multiplier: 1, max_delay: 5s, jitter: 0}"
QUEUE = "{type: queue, queue: orders, visibility_timeout: 30s, " + RETRIES + "}"
IN_ORDER = "{type: queue, queue: orders, ordering_key: $.data.customer, " + RETRIES + "}"


def received(sending: Sending, count: int = 100, seconds: float | None = None) -> list[ReceivedDelivery]:
    runtime = sending.runtime
    return receive(runtime, runtime.rule_set(), "orders", count, seconds)


def ids(deliveries: Sequence[ReceivedDelivery]) -> list[str]:
    return [json.loads(each.payload)["id"] for each in deliveries]


def receipts(deliveries: Sequence[ReceivedDelivery]) -> list[str]:
    return [each.receipt for each in deliveries]


def acknowledged(sending: Sending, deliveries: Sequence[ReceivedDelivery]) -> Receipts:
    return acknowledge(sending.runtime, sending.runtime.rule_set(), "orders", receipts(deliveries))


def pending(sending: Sending) -> int:
    return sum(row.count for row in sending.runtime.ledger.pending.counts(runner=RUNNER))


def statuses(sending: Sending) -> dict[str, int]:
    """Count the newest status of every delivery, by the settlements of all batches."""
    found: dict[bytes, str] = {}
    for batch in batches(sending):
        for rows in settled(sending.runtime, batch).values():
            found |= {row.delivery_id: row.status for row in rows}
    return {status: list(found.values()).count(status) for status in set(found.values())}


def is_reconciled(sending: Sending) -> bool:
    return audit(sending.runtime).differences == ()


def test_what_is_acknowledged_is_delivered(sending: Sending) -> None:
    """Deliveries are pending until a consumer acknowledges them; then a retry batch settles them as delivered."""
    sending.begin(5, pull=QUEUE)
    sending.deliver()
    assert pending(sending) == 5
    got = received(sending, 3)
    rest = received(sending)
    assert (len(got), len(rest), received(sending)) == (3, 2, [])
    assert len({*ids(got), *ids(rest)}) == 5
    assert acknowledged(sending, got) == Receipts(3, ())
    assert acknowledged(sending, got + rest) == Receipts(5, ())
    sending.deliver()

    assert pending(sending) == 0
    assert statuses(sending) == {"delivered": 5}
    assert is_reconciled(sending)
    assert acknowledged(sending, got) == Receipts(3, ())


def test_what_is_not_acknowledged_returns_with_its_attempt_counted(sending: Sending, clock: RunningClock) -> None:
    """After the visibility timeout and the delay of the policy; its old receipt is worth nothing any more."""
    sending.begin(1, pull=QUEUE)
    sending.deliver()
    first = received(sending)
    clock.advance(31)
    assert acknowledged(sending, first) == Receipts(0, tuple(receipts(first)))
    assert received(sending) == []
    clock.advance(5)
    second = received(sending)
    assert ids(second) == ids(first)
    assert [each.attempt for each in first + second] == [1, 2]
    assert acknowledged(sending, first) == Receipts(0, tuple(receipts(first)))
    assert acknowledged(sending, second) == Receipts(1, ())
    sending.deliver()

    assert statuses(sending) == {"delivered": 1}
    assert is_reconciled(sending)
    rows = [row for batch in batches(sending) for row in segment_rows(sending.runtime, batch) if row["sent"]]
    assert [(row["attempt"], row["outcome"], row["error_class"]) for row in rows] == [
        (1, "retry_scheduled", "VisibilityExpired"),
        (2, "delivered", None),
    ]


def test_what_is_never_acknowledged_becomes_a_dead_letter(sending: Sending, clock: RunningClock) -> None:
    """After the last attempt of the policy, whether the time is over or the consumer gives it back."""
    sending.begin(2, pull=QUEUE)
    sending.deliver()
    one, other = received(sending)
    runtime = sending.runtime
    rules = runtime.rule_set()
    assert release(runtime, rules, "orders", [one.receipt], 0.0, "no stock") == Receipts(1, ())
    assert release(runtime, rules, "orders", [one.receipt]) == Receipts(0, (one.receipt,))
    again = received(sending)
    assert [each.delivery_id for each in again] == [one.delivery_id]
    release(runtime, rules, "orders", receipts(again), 0.0, "no stock")
    clock.advance(31)
    assert received(sending) == []
    clock.advance(5)
    assert [each.delivery_id for each in received(sending)] == [other.delivery_id]
    clock.advance(31)
    assert received(sending) == []
    sending.deliver()

    assert statuses(sending) == {"dead_lettered": 2}
    assert is_reconciled(sending)
    details = {row.detail for batch in batches(sending) for rows in settled(runtime, batch).values() for row in rows}
    assert {"Released: no stock, attempt 2 of 2", "VisibilityExpired, attempt 2 of 2"} <= details


def test_an_event_that_is_too_old_becomes_a_dead_letter(sending: Sending, clock: RunningClock) -> None:
    """Unless a consumer has it at that time, who may still acknowledge it."""
    sending.begin(2, pull="{type: queue, queue: orders, retry: {maximum_event_age: 1h}}")
    sending.deliver()
    clock.advance(3_590)
    one = received(sending, 1)
    clock.advance(15)
    assert received(sending) == []
    sending.deliver()
    assert (statuses(sending)["dead_lettered"], pending(sending)) == (1, 1)
    assert acknowledged(sending, one) == Receipts(1, ())
    sending.deliver()

    assert statuses(sending) == {"dead_lettered": 1, "delivered": 1}
    assert is_reconciled(sending)


def test_a_key_is_received_in_order_and_one_at_a_time(sending: Sending, clock: RunningClock) -> None:
    """Other keys do not wait; the next delivery of a key follows once the first is acknowledged or dead."""
    orders = [order_of("a", 1), order_of("a", 2), order_of("b", 1), order_of("a", 3)]
    sending.begin(*orders, pull=IN_ORDER)
    sending.deliver()
    first = received(sending)
    assert sorted(ids(first)) == ["a-1", "b-1"]
    sending.publish(order_of("b", 2))
    sending.deliver()
    assert received(sending) == []
    acknowledged(sending, first)
    second = received(sending)
    assert sorted(ids(second)) == ["a-2", "b-2"]
    clock.advance(36)
    assert sorted(ids(received(sending))) == ["a-2", "b-2"]
    clock.advance(31)
    assert ids(received(sending)) == ["a-3"]
    sending.deliver()

    assert statuses(sending) == {"delivered": 2, "dead_lettered": 2, "retry_scheduled": 1}
    assert is_reconciled(sending)


def order_of(customer: str, number: int) -> bytes:
    event = {"specversion": "1.0", "id": f"{customer}-{number}", "source": "/shop", "type": "order.placed"}
    return json.dumps(event | {"data": {"customer": customer}}).encode()


def batches(sending: Sending) -> list[str]:
    found = sorted(sending.runtime.ledger.batches.find(limit=1_000), key=lambda each: each.planned_at)
    return [each.batch_id for each in found]


def test_a_consumer_keeps_a_delivery_longer(sending: Sending, clock: RunningClock) -> None:
    """Its visibility timeout begins again with each extension, up to 12 hours after it was received."""
    runtime = sending.begin(1, pull=QUEUE)
    sending.deliver()
    got = received(sending, seconds=60)
    clock.advance(50)
    assert extend(runtime, runtime.rule_set(), "orders", receipts(got), 43_200) == Receipts(1, ())
    clock.advance(43_140)
    assert received(sending) == []
    assert acknowledged(sending, got) == Receipts(1, ())


def test_nothing_is_received_while_the_target_is_paused(sending: Sending) -> None:
    """As for http; what a consumer has already received can be acknowledged."""
    runtime = sending.begin(2, pull=QUEUE)
    sending.deliver()
    got = received(sending, 1)
    operate(runtime, "pause target", "orders", "pull", by="test")
    assert received(sending) == []
    assert acknowledged(sending, got) == Receipts(1, ())
    operate(runtime, "resume target", "orders", "pull", by="test")

    assert len(received(sending)) == 1


def test_a_queue_without_consumers_holds_up_no_other_target(sending: Sending, clock: RunningClock) -> None:
    """Another queue and another target of the rule get all events of two batches, while nobody receives from one."""
    sending.begin(3, pull=QUEUE, idle="{type: queue, queue: idle}", crm="/healthy/crm")
    sending.deliver()
    sending.publish(3)
    sending.deliver()
    assert len(sending.requests()) == 6
    got = received(sending)
    assert (len(got), acknowledged(sending, got)) == (6, Receipts(6, ()))
    clock.advance(60)
    sending.deliver()

    assert pending(sending) == 6
    assert statuses(sending) == {"delivered": 12, "retry_scheduled": 6}
    assert is_reconciled(sending)


def test_a_queue_tells_what_waits(sending: Sending) -> None:
    """How many deliveries wait, and how many consumers have."""
    runtime = sending.begin(3, pull=QUEUE)
    sending.deliver()
    acknowledged(sending, received(sending, 1))
    received(sending, 1)
    (status,) = queue_statuses(runtime)

    assert (status.queue, status.targets) == ("orders", ("orders/pull",))
    assert (status.ready, status.received, status.finished) == (1, 1, 1)


def test_a_dead_letter_queue_may_be_a_queue(sending: Sending, clock: RunningClock) -> None:
    """Its consumers receive the dead letter as JSON; what they do not acknowledge stays on hold, and is not lost."""
    queue = QUEUE[:-1] + ", dead_letter_queue: {type: queue, queue: dead}}"
    runtime = sending.begin(1, pull=queue)
    sending.deliver()
    for _ in range(2):
        release(runtime, runtime.rule_set(), "orders", receipts(received(sending)), 0.0, "no stock")
    sending.deliver()
    sending.deliver()
    (copy,) = receive(runtime, runtime.rule_set(), "dead", 10)
    assert acknowledge(runtime, runtime.rule_set(), "dead", [copy.receipt]) == Receipts(1, ())
    sending.deliver()

    letter = json.loads(copy.payload)
    assert (copy.target, letter["target"]) == ("pull/dead_letter_queue", "pull")
    assert letter["detail"] == "Released: no stock, attempt 2 of 2"
    assert pending(sending) == 0
    assert is_reconciled(sending)


def test_the_watcher_starts_a_retry_run_for_results(sending: Sending, clock: RunningClock) -> None:
    """At once if all of a batch are finished, else half a minute after the first; also for expired attempts."""
    runtime = sending.begin(2, pull=QUEUE)
    sending.deliver()
    queues = runtime.ledger.queues
    assert not queues.has_work(runtime.ledger.now())
    first = received(sending, 1)
    acknowledged(sending, first)
    assert not queues.has_work(runtime.ledger.now())
    clock.advance(31)
    assert queues.has_work(runtime.ledger.now())
    sending.deliver()
    assert not queues.has_work(runtime.ledger.now())
    acknowledged(sending, received(sending, 1))
    assert queues.has_work(runtime.ledger.now())
    sending.deliver()

    assert not queues.has_work(runtime.ledger.now())
    assert pending(sending) == 0


def test_the_trace_of_an_event_says_what_its_delivery_waits_for(sending: Sending, clock: RunningClock) -> None:
    """For a consumer, for a retry, or for the batch that records the acknowledgement."""
    runtime = sending.begin(1, pull=QUEUE)
    sending.deliver()

    def says() -> str | None:
        (event,) = why_between(runtime, "1", None, None, None).events
        return event.steps[-1].detail

    assert says() == "in the queue, waits for a consumer"
    got = received(sending)
    assert "a consumer has it until" in str(says())
    release(runtime, runtime.rule_set(), "orders", receipts(got))
    assert "can be received at" in str(says())
    clock.advance(6)
    acknowledged(sending, received(sending))
    assert "the next retry batch records it" in str(says())


def test_a_removed_queue_leaves_nothing_behind(sending: Sending, clock: RunningClock) -> None:
    """Its deliveries become dead letters after the grace of removed rules, and leave the queue."""
    runtime = sending.begin(2, pull=QUEUE)
    sending.deliver()
    received(sending, 1)
    sending.remove()
    sending.retry()
    assert sum(each.count for each in runtime.ledger.queues.counts()) == 2
    clock.advance(3_700)
    sending.retry()
    sending.retry()

    assert statuses(sending) == {"dead_lettered": 2}
    assert runtime.ledger.queues.counts() == []
    assert is_reconciled(sending)


def test_a_target_that_is_no_queue_any_more_leaves_nothing_behind(sending: Sending, clock: RunningClock) -> None:
    """Its new type delivers what waited; maintenance forgets the queue, but never one that is in use."""
    runtime = sending.begin(2, pull=QUEUE)
    sending.deliver()
    received(sending, 1)
    assert runtime.ledger.queues.forget_abandoned() == 0
    sending.rules(pull="/healthy/crm")
    clock.advance(90_000)
    sending.deliver()

    assert pending(sending) == 0
    assert runtime.ledger.queues.forget_abandoned() == 2
    assert is_reconciled(sending)
