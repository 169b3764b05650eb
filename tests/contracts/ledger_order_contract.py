"""What every ledger must do for ordered targets: a shard has one holder and one batch at a time; nothing goes early."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from contracts.ledger_samples import PARTITIONS, Clock, a_pending, a_retry_batch, after, settle

from eventbridge.ledger import Ledger
from eventbridge.model.partition import Span
from eventbridge.model.pending import PendingDeliveries
from eventbridge.policy.ordering import BEHIND_ITS_KEY, SKIPPED, on_hold_at


def in_shard(shard: int, due_in_seconds: float = 5, **changes: object) -> PendingDeliveries:
    """Return a pending row of a shard."""
    return replace(a_pending(due_in_seconds, lane=f"order.{shard}", order_shard=shard), **changes)  # type: ignore[arg-type]


class OrderContract:
    """The part about order."""

    def test_a_lease_has_one_holder_until_it_runs_out(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """No other process gets it before, its holder may extend it, and a process that lost it cannot."""
        assert ledger.order.acquire_lease("late", "crm", 3, "one", after(30))
        assert not rival.order.acquire_lease("late", "crm", 3, "two", after(60))
        assert rival.order.acquire_lease("late", "crm", 4, "two", after(60))
        clock.pass_seconds(20)
        assert ledger.order.acquire_lease("late", "crm", 3, "one", after(50))
        clock.pass_seconds(20)
        assert not rival.order.acquire_lease("late", "crm", 3, "two", after(99))
        clock.pass_seconds(10)

        assert rival.order.acquire_lease("late", "crm", 3, "two", after(99))
        assert not ledger.order.acquire_lease("late", "crm", 3, "one", after(99))
        assert ledger.order.leases("late", "crm") == {3: "two", 4: "two"}

    def test_only_the_holder_ends_a_lease(self, ledger: Ledger, rival: Ledger) -> None:
        """Ended, it is anybody's at once; another's stays."""
        ledger.order.acquire_lease("late", "crm", 3, "one", after(30))

        assert not rival.order.release_lease("late", "crm", 3, "two")
        assert ledger.order.release_lease("late", "crm", 3, "one")
        assert ledger.order.leases("late", "crm") == {}
        assert rival.order.acquire_lease("late", "crm", 3, "two", after(30))

    def test_of_a_shard_one_batch_has_rows(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """A second batch gets no rows of a shard, whichever, until the first is committed; other shards it gets."""
        settle(ledger)
        ledger.pending.add([in_shard(1, 1), in_shard(1, 2), in_shard(2, 3)])
        clock.pass_seconds(10)
        assert [row.pending_id for row in ledger.due.rows_in_order(clock(), "late", "crm", 10)] == [1, 2, 3]
        assert ledger.pending.take(a_retry_batch("retry-1"), [], [1])

        assert not rival.pending.take(a_retry_batch("retry-2"), [], [2])
        assert [row.pending_id for row in rival.due.rows_in_order(clock(), "late", "crm", 10)] == [3]
        assert rival.pending.take(a_retry_batch("retry-3"), [], [3])
        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], clock(), "000000")
        assert rival.pending.take(a_retry_batch("retry-4"), [], [2])

    def test_open_rows_of_a_shard_include_taken_ones(self, ledger: Ledger, clock: Clock) -> None:
        """Scheduled, on hold and taken rows are open, with the positions they have; closed and unsharded ones not."""
        settle(ledger)
        spans = (Span(PARTITIONS[0], 3, 2**40), Span(PARTITIONS[1], 5, 5))
        ledger.pending.add(
            [
                in_shard(1, 1, order_spans=spans),
                in_shard(2, 2, hold_reason=BEHIND_ITS_KEY),
                a_pending(3),
                in_shard(1, 4),
            ]
        )
        clock.pass_seconds(10)
        ledger.pending.take(a_retry_batch(), [], [1])

        assert [row.pending_id for row in ledger.order.open_rows("late", "crm")] == [1, 2, 4]
        assert [row.pending_id for row in ledger.order.open_rows("late", "crm", 1)] == [1, 4]
        assert ledger.order.open_rows("late", "crm", 1)[0].order_spans == spans
        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], clock(), "000000")
        assert [row.pending_id for row in ledger.order.open_rows("late", "crm")] == [2, 4]

    def test_a_shard_waits_for_nothing_if_all_of_it_waits_behind_its_key(self, ledger: Ledger) -> None:
        """Not if a row of it is due, taken, or on hold for another reason; closed ones are removed."""
        settle(ledger)
        held = {"hold_reason": BEHIND_ITS_KEY}
        ledger.pending.add([in_shard(shard, seconds, **held) for shard in range(7) for seconds in range(3)])
        ledger.pending.add(
            [
                in_shard(1, 7),
                in_shard(2, 8),
                in_shard(3, 7, hold_reason="a"),
                in_shard(4, 7, hold_reason="z"),
                in_shard(5, 9),
            ]
        )
        ledger.pending.add([a_pending(7, target="mail", **held), a_pending(8, **held)])
        taken = {row.order_shard: row.pending_id for row in ledger.pending.find("scheduled")}
        assert ledger.pending.take(a_retry_batch(), [], [taken[2]])
        assert ledger.pending.take(a_retry_batch("retry-2"), [], [taken[5]])
        ledger.settlement.begin("retry-2")
        ledger.settlement.commit("retry-2", "flights", [], after(60), "000000")

        assert ledger.order.blocked_shards("late", "crm") == [0, 5, 6]
        assert ledger.order.blocked_shards("late", "mail") == []

    def test_a_shard_is_released_alone_and_grows_no_older(self, ledger: Ledger, clock: Clock) -> None:
        """What waits behind its key is due at once; what is on hold for another reason, or of another shard, is not."""
        settle(ledger)
        held = {"hold_reason": BEHIND_ITS_KEY}
        ledger.pending.add([in_shard(1, **held), in_shard(2, **held), in_shard(1, 7, hold_reason="pool closed")])
        assert ledger.order.blocked_shards("late", "crm") == [2]
        clock.pass_seconds(100)

        assert ledger.order.release_shard("late", "crm", 1) == 1
        rows = {row.pending_id: row for row in ledger.pending.find()}
        assert (rows[1].state, rows[1].hold_reason, rows[1].due_at) == ("scheduled", "", after(100))
        assert rows[1].on_hold_seconds == pytest.approx(100)
        assert rows[1].expires_at == after(3600) + timedelta(seconds=100)
        assert [rows[number].state for number in (2, 3)] == ["on_hold", "on_hold"]

    def test_the_note_of_an_operator_stays_with_the_row(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """A row on hold at its delivery is due with the note at it, once; a row on hold for something else is not."""
        settle(ledger)
        ledger.pending.add([in_shard(0, hold_reason=on_hold_at("id-1")), in_shard(0, 6, hold_reason=BEHIND_ITS_KEY)])
        assert [row.hold_reason for row in ledger.order.rows_on_hold("late")] == [on_hold_at("id-1"), BEHIND_ITS_KEY]
        clock.pass_seconds(50)

        assert not rival.order.release_row(2, on_hold_at("id-1"), SKIPPED)
        assert rival.order.release_row(1, on_hold_at("id-1"), SKIPPED)
        assert not ledger.order.release_row(1, on_hold_at("id-1"), SKIPPED)
        (row,) = ledger.due.rows_in_order(clock(), "late", "crm", 10)
        assert (row.hold_reason, row.due_at) == (SKIPPED, after(50))
        assert ledger.pending.hold("late", "crm", "pool closed") == 0
