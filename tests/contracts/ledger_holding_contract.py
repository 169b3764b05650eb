"""What every ledger must do with deliveries on hold: they wait until they are released, dead-lettered or too old."""

from __future__ import annotations

import pytest
from contracts.ledger_samples import Clock, a_pending, a_retry_batch, after, due, names, settle

from eventbridge.ledger import Ledger


class HoldingContract:
    """The part about pending deliveries that are on hold."""

    def test_held_rows_are_not_due(self, ledger: Ledger, clock: Clock) -> None:
        """Holding a target's rows, those due later included, leaves taken ones and other targets alone."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(90), a_pending(2), a_pending(1, target="mail")])
        ledger.pending.take(a_retry_batch(), [], [3])
        clock.pass_seconds(7)

        assert ledger.pending.hold("late", "crm", "target disabled") == 2
        held = ledger.pending.find("on_hold")
        assert [(row.pending_id, row.hold_reason, row.on_hold_since) for row in held] == [
            (1, "target disabled", after(7)),
            (2, "target disabled", after(7)),
        ]
        assert due(ledger, 99) == []
        assert due(ledger, 99, "mail") == [4]
        assert ledger.pending.hold("late", "crm", "again") == 0

    def test_a_released_row_is_due_now_and_its_age_stood_still(self, ledger: Ledger, clock: Clock) -> None:
        """The time on hold is counted, put on top of earlier ones, and moves the end of its age."""
        settle(ledger)
        ledger.pending.add(
            [
                a_pending(900, hold_reason="rule disabled", on_hold_seconds=1.5),
                a_pending(9, expires_at=None, hold_reason="x"),
            ]
        )
        clock.pass_seconds(30.25)

        assert ledger.pending.release("late", "crm") == 2
        first, second = ledger.pending.find("scheduled")
        assert (first.due_at, first.hold_reason, first.on_hold_since) == (after(30.25), "", None)
        assert first.on_hold_seconds == pytest.approx(31.75)
        assert first.expires_at == after(3630.25)
        assert (second.on_hold_seconds, second.expires_at) == (pytest.approx(30.25), None)
        assert due(ledger, 31) == [1, 2]
        assert ledger.pending.release("late", "crm") == 0

    def test_a_row_held_for_a_410_continues_to_age(self, ledger: Ledger, clock: Clock) -> None:
        """Released as aged, its time on hold is not counted; only what is on hold for the given reason is released."""
        settle(ledger)
        ledger.pending.add([a_pending(1, hold_reason="target disabled"), a_pending(1, hold_reason="pool closed")])
        clock.pass_seconds(30)

        assert ledger.pending.release("late", "crm", aged=True, hold_reason="target disabled") == 1
        row = ledger.pending.find("scheduled")[0]
        assert (row.pending_id, row.on_hold_seconds, row.expires_at, row.due_at) == (1, 0.0, after(3600), after(30))
        assert [row.pending_id for row in ledger.pending.find("on_hold")] == [2]

    def test_the_reason_of_a_hold_can_be_replaced(self, ledger: Ledger, clock: Clock) -> None:
        """In one step, so that no planner finds it due in between; the whole time on hold is counted."""
        settle(ledger)
        ledger.pending.add([a_pending(1, hold_reason="rule disabled"), a_pending(1, hold_reason="pool closed")])
        clock.pass_seconds(30)

        assert ledger.pending.release("late", "crm", hold_reason="rule disabled", instead="rule removed") == 1
        first, second = ledger.pending.find("on_hold")
        assert (first.hold_reason, first.on_hold_since, first.on_hold_seconds) == (
            "rule removed",
            after(30),
            pytest.approx(30),
        )
        assert (second.hold_reason, second.on_hold_seconds) == ("pool closed", 0.0)

    def test_a_row_marked_for_dead_lettering_is_due_and_stays_due(self, ledger: Ledger, clock: Clock) -> None:
        """Its reason marks it: not on hold again, and due though its target is disabled; the others stay on hold."""
        settle(ledger)
        ledger.pending.add([a_pending(90, hold_reason="rule removed"), a_pending(90, hold_reason="pool closed")])
        ledger.targets.set_status("late", "crm", "disabled", "the target responded with 410")
        clock.pass_seconds(5)

        assert ledger.pending.dead_letter("late", "crm", "rule removed") == 1
        assert ledger.pending.hold("late", "crm", "rule removed") == 0
        (row,) = ledger.pending.find("scheduled")
        assert (row.hold_reason, row.on_hold_since, row.due_at) == ("rule removed", after(0), after(5))
        assert due(ledger, 5) == [1]
        assert names(ledger.due.targets(after(5))) == [("late", "crm")]
        assert [row.pending_id for row in ledger.pending.find("on_hold")] == [2]

    def test_a_row_marked_for_dead_lettering_can_be_released(self, ledger: Ledger, clock: Clock) -> None:
        """Its rule came back: it is due as any other, and its age stood still until now."""
        settle(ledger)
        ledger.pending.add([a_pending(90, hold_reason="rule removed")])
        clock.pass_seconds(5)
        ledger.pending.dead_letter("late", "crm", "rule removed")
        clock.pass_seconds(5)

        assert ledger.pending.release("late", "crm", hold_reason="rule removed") == 1
        (row,) = ledger.pending.find("scheduled")
        assert (row.hold_reason, row.on_hold_since, row.on_hold_seconds) == ("", None, pytest.approx(10))

    def test_a_row_on_hold_for_a_disabled_target_ends_at_its_maximum_age(self, ledger: Ledger, clock: Clock) -> None:
        """Past its age a row of a disabled target is due, so that it can be dead-lettered; the others stay on hold."""
        settle(ledger)
        ledger.pending.add(
            [a_pending(1), a_pending(2, expires_at=after(7200)), a_pending(1, target="mail", hold_reason="pool closed")]
        )
        ledger.targets.set_status("late", "crm", "disabled", "the target responded with 410")
        ledger.pending.hold("late", "crm", "target disabled")

        assert ledger.pending.release_expired(clock.pass_seconds(3599)) == 0
        assert ledger.pending.release_expired(clock.pass_seconds(1)) == 1
        assert names(ledger.due.targets(after(3600))) == [("late", "crm")]
        assert due(ledger, 3600) == [1]
        assert [row.pending_id for row in ledger.pending.find("on_hold")] == [2, 3]
