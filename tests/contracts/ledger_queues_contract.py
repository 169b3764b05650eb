"""What every ledger must do for queues: a delivery has one consumer at a time, and a key one delivery.

Queues have this contract in place of that of targets (`test_target_contract`), because nothing is sent to a queue: its
target refuses requests, a push adds rows to the ledger, and consumers decide how each attempt ends. What else a target
owes its deliveries (retries, age, dead letters, order, reconciliation, isolation) is in `test_queue_target`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from contracts.ledger_samples import Clock, after

from eventbridge.ledger import Ledger
from eventbridge.model.queue import AttemptEnd, EndedAttempt, QueueEntry, ReceivedDelivery

KEY = ("shipped", "pull")
BATCH = "batch-1"


def entries(count: int, *, first: int = 0, key: str | None = None) -> list[QueueEntry]:
    """Return deliveries to one target; `key` is their order key."""
    return [
        QueueEntry(f"d-{number:04d}", *KEY, 0, after(3_600), b"{}", "application/json", {}, key)
        for number in range(first, first + count)
    ]


def received(ledger: Ledger, most: int = 1_000, seconds: float = 30) -> list[ReceivedDelivery]:
    return ledger.queues.receive([KEY], most, 1 << 20, {KEY: timedelta(seconds=seconds)})


def acknowledged(ledger: Ledger, deliveries: Sequence[ReceivedDelivery]) -> int:
    return len(ledger.queues.acknowledge([KEY], [each.receipt for each in deliveries], ordered=True))


def ids(deliveries: Sequence[ReceivedDelivery]) -> list[str]:
    return [each.delivery_id for each in deliveries]


class QueuesContract:
    """The part about queues."""

    def test_of_two_consumers_each_delivery_has_one(self, ledger: Ledger, rival: Ledger) -> None:
        """Also while a push adds the same deliveries again, and others."""
        ledger.queues.add(BATCH, entries(300))

        def consume(of: Ledger) -> list[str]:
            found: list[str] = []
            while got := received(of, 7):
                found += ids(got)
                assert acknowledged(of, got) == len(got)
            return found

        def push() -> None:
            for first in range(0, 300, 50):
                ledger.queues.add(BATCH, entries(100, first=first))

        with ThreadPoolExecutor(3) as pool:
            one, two, pushed = pool.submit(consume, ledger), pool.submit(consume, rival), pool.submit(push)
            pushed.result()
        found = one.result() + two.result() + consume(ledger)

        assert len(found) == len(set(found)) == 350

    def test_the_next_delivery_of_a_key_is_never_forgotten(self, ledger: Ledger, rival: Ledger) -> None:
        """One consumer acknowledges while another process adds deliveries of the key: none stays blocked for ever."""

        def push() -> None:
            for number in range(100):
                rival.queues.add(BATCH, entries(1, first=number, key="a"))

        found: list[str] = []
        with ThreadPoolExecutor(1) as pool:
            pushed = pool.submit(push)
            while not pushed.done() or len(found) < 100:
                got = received(ledger)
                assert len(got) <= 1
                found += ids(got)
                acknowledged(ledger, got)
                assert pushed.done() is False or pushed.exception() is None
        assert found == sorted(found)
        assert len(found) == 100

    def test_a_receipt_is_worth_nothing_after_its_time(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """Neither before nor after the attempt is ended; a repeated acknowledgement has the same result."""
        ledger.queues.add(BATCH, entries(2))
        one, other = received(ledger, seconds=30)
        assert acknowledged(rival, [other]) == acknowledged(ledger, [other]) == 1
        clock.pass_seconds(30)
        assert acknowledged(rival, [one]) == 0
        assert ledger.queues.extend([KEY], [one.receipt], timedelta(hours=1), timedelta(hours=12)) == set()
        (expired,) = rival.queues.expired(10)
        ended = EndedAttempt(1, clock(), clock(), "VisibilityExpired", "")
        assert ids(received(ledger)) == []
        assert len(ledger.queues.end_attempts([AttemptEnd(expired, ended, clock())])) == 1
        assert rival.queues.end_attempts([AttemptEnd(expired, ended, clock())]) == []
        (again,) = received(rival)

        assert (again.delivery_id, again.attempt) == (one.delivery_id, 2)
        assert again.receipt != one.receipt
        assert acknowledged(ledger, [one]) == 0

    def test_an_attempt_that_was_extended_is_not_ended(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """An extension at the last moment wins over a process that saw the timeout end before."""
        ledger.queues.add(BATCH, entries(1))
        (got,) = received(ledger, seconds=30)
        clock.pass_seconds(31)
        (seen,) = rival.queues.expired(10)
        clock.pass_seconds(-2)
        assert ledger.queues.extend([KEY], [got.receipt], timedelta(minutes=5), timedelta(hours=12)) == {got.receipt}
        clock.pass_seconds(2)
        ended = EndedAttempt(1, clock(), clock(), "VisibilityExpired", "")

        assert rival.queues.end_attempts([AttemptEnd(seen, ended, clock())]) == []
        assert acknowledged(ledger, [got]) == 1

    def test_receipts_of_another_queue_have_no_effect(self, ledger: Ledger) -> None:
        """A consumer names receipts only of queues that it may consume."""
        ledger.queues.add(BATCH, entries(1))
        (got,) = received(ledger)

        assert ledger.queues.acknowledge([("shipped", "other")], [got.receipt]) == set()
        assert ledger.queues.held([("shipped", "other")], [got.receipt]) == []
        assert ledger.queues.extend([("paid", "pull")], [got.receipt], timedelta(1), timedelta(1)) == set()

    def test_a_settled_delivery_can_come_again(self, ledger: Ledger, clock: Clock) -> None:
        """For example by a redrive; without one it is forgotten an hour later, when others are settled."""
        ledger.queues.add(BATCH, entries(2))
        first, kept = received(ledger)
        acknowledged(ledger, [first, kept])
        ledger.queues.settle(["d-0000", "d-0001"])
        assert acknowledged(ledger, [kept]) == 1
        ledger.queues.add("batch-2", entries(1))
        assert ids(received(ledger)) == ["d-0000"]
        clock.pass_seconds(3_601)
        ledger.queues.settle(["d-0000"])

        assert acknowledged(ledger, [kept]) == 0
        assert ledger.queues.counts() == []
