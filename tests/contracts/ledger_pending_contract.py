"""What every ledger must do with pending deliveries: none is lost, none is given out twice, and they are counted."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from contracts.ledger_samples import Clock, a_chunk, a_file, a_pending, a_retry_batch, after, due, names, settle

from eventbridge.errors import LedgerError, ReconciliationError, SettledAgainError
from eventbridge.ledger import Ledger
from eventbridge.model.pending import PendingCount, PendingDeliveries, WaitingTarget


class PendingContract:
    """The part about pending deliveries."""

    def test_a_pending_row_comes_back_as_it_was_pending(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """Every field, file and pair of lineage survives; the ledger adds its number and the time."""
        settle(ledger)
        row = a_pending(on_hold_seconds=1.25, order_shard=7, lane="replay")
        clock.pass_seconds(3)

        assert ledger.pending.add([row]) == 1
        assert rival.pending.find() == [replace(row, pending_id=1, pending_at=after(3))]
        assert rival.pending.list_for_batch("batch-1") == rival.pending.find()
        assert rival.pending.list_for_batch("batch-2") == []

    def test_to_add_the_same_again_adds_nothing(self, ledger: Ledger, rival: Ledger) -> None:
        """Whole or in part, by the same process or another, at any time: each row exists once."""
        settle(ledger)
        rows = [a_pending(seconds, hold_reason=held) for seconds in (1, 2) for held in ("", "pool closed")]

        assert ledger.pending.add(rows[:1]) == 1
        assert rival.pending.add(rows) == 3
        assert ledger.pending.add(rows) == 0
        assert ledger.pending.add([]) == 0
        assert len(ledger.pending.find()) == 4

    def test_pending_again_after_it_moved_on_it_stays_as_it_is(self, ledger: Ledger, clock: Clock) -> None:
        """A late second schedule_retries does not add a row again that was on hold, released, taken or closed since."""
        settle(ledger)
        ledger.pending.add([a_pending()])
        ledger.pending.hold("late", "crm", "target disabled")
        assert ledger.pending.add([a_pending()]) == 0
        clock.pass_seconds(50)
        ledger.pending.release("late", "crm")
        assert ledger.pending.add([a_pending()]) == 0
        ledger.pending.take(a_retry_batch(), [], [1])
        assert ledger.pending.add([a_pending()]) == 0
        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], after(60), "000000")
        assert ledger.pending.add([a_pending()]) == 0

        assert [row.state for row in ledger.pending.find()] == ["closed"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"settlement": 1},
            {"chunk_id": 1},
            {"rule": "early"},
            {"target": "mail"},
            {"reason": "unknown"},
            {"attempts": 2},
            {"lane": "normal"},
            {"due_at": after(6)},
            {"hold_reason": "pool closed"},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_rows_that_differ_in_name_are_both_pending(self, ledger: Ledger, changes: dict[str, object]) -> None:
        """Each part of a row's name keeps it apart from the others of its batch."""
        settle(ledger)

        assert ledger.pending.add([a_pending(), replace(a_pending(), **changes)]) == 2

    def test_other_deliveries_under_one_name_are_never_dropped(self, ledger: Ledger) -> None:
        """Two rows of one name with other files: nothing of the call is added, and the error says which name."""
        settle(ledger)
        other = a_pending(files=(("deliveries/3.parquet", "0"),), count=1)

        with pytest.raises(ReconciliationError, match="rule late, target crm"):
            ledger.pending.add([a_pending(99), a_pending(), other])
        assert ledger.pending.find() == []
        ledger.pending.add([a_pending()])
        with pytest.raises(ReconciliationError):
            ledger.pending.add([a_pending(99), other])
        assert len(ledger.pending.find()) == 1

    def test_thousands_are_pending_and_taken_at_once(self, ledger: Ledger) -> None:
        """A batch that could deliver nothing leaves pending what it has, and one batch can take it all up."""
        settle(ledger)
        rows = [a_pending(number / 1000) for number in range(5_000)]

        assert ledger.pending.add(rows) == 5_000
        assert ledger.pending.take(a_retry_batch(), [], range(1, 5_001))
        assert len(ledger.pending.list_taken_by("retry-1")) == 5_000

    def test_due_rows_come_oldest_first(self, ledger: Ledger) -> None:
        """Due: its time has come, it is neither on hold nor taken; up to a number of rows, of any or one runner."""
        settle(ledger)
        ledger.pending.add([a_pending(3), a_pending(1), a_pending(2), a_pending(2, runner="trains", chunk_id=1)])
        ledger.pending.add([a_pending(1, target="mail"), a_pending(1, hold_reason="pool closed")])

        assert due(ledger, 0.999) == []
        assert due(ledger, 1) == [2]
        assert due(ledger, 9) == [2, 3, 4, 1]
        assert due(ledger, 9, limit_rows=2) == [2, 3]
        assert due(ledger, 9, runner="trains") == [4]
        ledger.pending.take(a_retry_batch(), [], [2])
        assert due(ledger, 9) == [3, 4, 1]

    def test_targets_with_deliveries_due_are_listed(self, ledger: Ledger) -> None:
        """The longest waiting first; disabled targets are left out."""
        settle(ledger)
        ledger.pending.add(
            [a_pending(3), a_pending(4), a_pending(90), a_pending(2, target="mail"), a_pending(4, rule="early")]
        )

        assert ledger.due.targets(after(1)) == []
        assert names(ledger.due.targets(after(4))) == [
            ("late", "mail"),
            ("late", "crm"),
            ("early", "crm"),
        ]
        assert [each.first_due_at for each in ledger.due.targets(after(4))] == [after(2), after(3), after(4)]
        assert ledger.due.targets(after(4), "trains") == []
        ledger.targets.set_status("late", "mail", "degraded", "slow")
        ledger.targets.set_status("late", "crm", "disabled", "the target responded with 410")
        assert names(ledger.due.targets(after(4), "flights")) == [("late", "mail"), ("early", "crm")]
        assert due(ledger, 4) == []

    def test_whether_anything_is_due_and_taken_is_known(self, ledger: Ledger, rival: Ledger) -> None:
        """However many rows are due longer of a target that is left alone; and which retry batch is the newest."""
        settle(ledger)
        assert not ledger.due.has_any(after(4))
        ledger.pending.add([a_pending(number / 1_000) for number in range(150)])
        assert [ledger.due.has_any(after(seconds)) for seconds in (-1, 0)] == [False, True]
        ledger.targets.set_status("late", "crm", "disabled", "the target responded with 410")
        assert not ledger.due.has_any(after(4))
        ledger.pending.add([a_pending(3, target="mail")])

        assert [ledger.due.has_any(after(seconds)) for seconds in (2, 3)] == [False, True]
        assert (ledger.pending.has_taken(), ledger.batches.newest_retry()) == (False, None)
        assert rival.pending.take(a_retry_batch(), [], [151])
        assert (ledger.pending.has_taken(), ledger.batches.newest_retry()) == (True, "retry-1")
        assert not ledger.due.has_any(after(4))
        ledger.pending.add([a_pending(-9, expires_at=after(4))])
        assert [ledger.due.has_any(after(seconds)) for seconds in (3, 4)] == [False, True]

    def test_a_taken_row_belongs_to_one_batch(self, ledger: Ledger, rival: Ledger) -> None:
        """Planning takes all of its rows or none: the loser has no batch, no chunks and no rows."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(2), a_pending(3)])
        batch, chunk = a_retry_batch("retry-2"), a_chunk(0, "retry-2")

        assert ledger.pending.take(a_retry_batch(), [a_chunk(0, "retry-1")], [1])
        assert not rival.pending.take(batch, [chunk], [1, 2, 3])
        assert [found.batch_id for found in rival.batches.find()] == ["retry-1", "batch-1"]
        assert rival.chunks.list_for_batch("retry-2") == []
        assert [row.taken_by for row in rival.pending.find()] == ["retry-1", None, None]
        assert rival.pending.take(batch, [chunk], [2, 3])
        assert rival.batches.get("retry-2") == batch
        assert rival.chunks.list_for_batch("retry-2") == [chunk]
        assert [row.pending_id for row in rival.pending.list_taken_by("retry-2")] == [2, 3]
        assert rival.pending.list_taken_targets() == {("late", "crm")}

    def test_the_last_taken_rows_of_each_target_are_known(self, ledger: Ledger) -> None:
        """By which of the newest retry batches, as many as are asked for, each target's rows were taken last."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(2), a_pending(3, target="mail"), a_pending(4, target="never")])
        assert ledger.pending.last_taken(9) == {}
        for number, pending_id in enumerate((3, 1, 2), 1):
            planned_at = after(number)
            assert ledger.pending.take(a_retry_batch(f"retry-{number}", planned_at=planned_at), [], [pending_id])

        assert ledger.pending.last_taken(9) == {("late", "crm"): "retry-3", ("late", "mail"): "retry-1"}
        assert ledger.pending.last_taken(1) == {("late", "crm"): "retry-3"}

    @pytest.mark.parametrize("pending_id", [2, 99], ids=["on_hold", "not-there"])
    def test_only_due_rows_can_be_taken(self, ledger: Ledger, pending_id: int) -> None:
        """A row that is on hold, or does not exist, makes the plan fail as a whole."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(2, hold_reason="pool closed")])

        assert not ledger.pending.take(a_retry_batch(), [], [1, pending_id])
        assert [row.taken_by for row in ledger.pending.find()] == [None, None]

    def test_rows_due_within_a_time_can_be_made_due_now(self, ledger: Ledger, clock: Clock) -> None:
        """Both ends included; not what is due before or after, on hold, to be ended, taken, or another target's."""
        settle(ledger)
        seconds = (99, 100, 101, 102)
        ledger.pending.add(
            [*map(a_pending, seconds), a_pending(100, target="mail"), a_pending(100, hold_reason="pool closed")]
        )
        clock.pass_seconds(30)

        assert ledger.pending.hasten("late", "crm", after(100), after(101)) == 2 * a_pending(1).count
        assert due(ledger, 30) == [2, 3]
        assert due(ledger, 100, "mail") == [5]
        assert ledger.pending.hasten("late", "crm", after(100), after(101)) == 0

    def test_pending_rows_are_listed_by_state_runner_and_rule(self, ledger: Ledger) -> None:
        """Filters combine; without one, rows of all states are listed in the order they were added."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(2, runner="trains"), a_pending(3, rule="early", hold_reason="x")])
        ledger.pending.take(a_retry_batch(), [], [1])
        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], after(9), "000000")

        def ids(rows: list[PendingDeliveries]) -> list[int | None]:
            return [row.pending_id for row in rows]

        assert ids(ledger.pending.find()) == [1, 2, 3]
        assert ids(ledger.pending.find("scheduled")) == [2]
        assert ids(ledger.pending.find("closed", runner="flights")) == [1]
        assert ids(ledger.pending.find(rule="early")) == [3]
        assert ids(ledger.pending.find("scheduled", rule="early")) == []

    def test_pending_rows_are_counted(self, ledger: Ledger) -> None:
        """By rule, target, state and reason, with the first due time; taken rows count until they are closed."""
        settle(ledger)
        ledger.pending.add(
            [a_pending(5), a_pending(4), a_pending(3, reason="unknown"), a_pending(2, hold_reason="pool closed")]
        )
        ledger.pending.take(a_retry_batch(), [], [1])

        held = PendingCount("late", "crm", "on_hold", "retry_scheduled", 1, 5, after(2))
        retry = PendingCount("late", "crm", "scheduled", "retry_scheduled", 2, 10, after(4))
        unknown = PendingCount("late", "crm", "scheduled", "unknown", 1, 5, after(3))
        assert ledger.pending.counts() == [held, retry, unknown]
        assert ledger.pending.counts("trains") == []
        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], after(9), "000000")
        assert ledger.pending.counts("flights") == [held, replace(retry, rows=1, count=5), unknown]

    def test_pending_deliveries_are_counted_by_rule(self, ledger: Ledger) -> None:
        """Deliveries, of all targets, scheduled and on hold, taken or not; closed ones do not wait."""
        settle(ledger)
        ledger.pending.add([a_pending(5), a_pending(4, target="mail"), a_pending(3, hold_reason="pool closed")])
        ledger.pending.add([a_pending(2, rule="early")])
        ledger.pending.take(a_retry_batch(), [], [1])
        assert ledger.pending.counts_by_rule() == {"early": 5, "late": 15}

        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], after(9), "000000")

        assert ledger.pending.counts_by_rule() == {"early": 5, "late": 10}

    def test_waiting_targets_say_why_they_wait(self, ledger: Ledger, clock: Clock) -> None:
        """By target, state and reason, with when the last was put on hold; taken and closed rows do not wait."""
        settle(ledger)
        ledger.pending.add([a_pending(5), a_pending(4), a_pending(3, target="mail")])
        ledger.pending.add([a_pending(2, hold_reason="pool closed")])
        clock.pass_seconds(6)
        ledger.pending.add([a_pending(1, hold_reason="pool closed")])
        ledger.pending.take(a_retry_batch(), [], [3])

        assert ledger.pending.waiting_targets() == [
            WaitingTarget("late", "crm", "on_hold", "pool closed", after(6)),
            WaitingTarget("late", "crm", "scheduled", "", None),
        ]
        assert ledger.pending.waiting_targets("trains") == []

    def test_waiting_targets_are_those_of_all_rows(self, ledger: Ledger) -> None:
        """Whichever rules, targets, reasons and runners there are and how many rows of each: none is passed over."""
        settle(ledger)
        kinds = itertools.product(("a", "late", "z"), ("crm", "mail"), ("", "order", "pool closed"), ("flights", "x"))
        some = [kind for number, kind in enumerate(kinds) if number % 5]
        for chunk_id, (rule, target, held, runner) in enumerate(some):
            changes = {"rule": rule, "target": target, "hold_reason": held, "runner": runner, "chunk_id": chunk_id}
            ledger.pending.add([a_pending(seconds, **changes) for seconds in range(chunk_id % 3 + 1)])

        for runner in (None, "flights", "x", "trains"):
            expected = {each[:3] for each in some if runner in (None, each[3])}
            assert sorted(
                (each.rule, each.target, each.hold_reason) for each in ledger.pending.waiting_targets(runner)
            ) == sorted(expected)

    def test_a_pending_row_needs_its_batch(self, ledger: Ledger) -> None:
        """Nothing can become pending in the name of a batch that is not there."""
        with pytest.raises(LedgerError):
            ledger.pending.add([a_pending()])

        assert ledger.pending.find() == []

    def test_pending_rows_of_a_batch_are_set_aside_unless_another_batch_has_them(
        self, ledger: Ledger, rival: Ledger
    ) -> None:
        """A batch that is settled again forgets its files and rows at once; not if one was taken, or it moved on."""
        settle(ledger)
        old = a_file(key="000000", kind="settlement")
        new = a_file(key="000001", kind="settlement")
        ledger.files.record(old, "settling")
        ledger.pending.add([a_pending(), a_pending(target="log")])

        assert not ledger.settlement.set_aside("batch-1", "routed", [old], "000000", new)
        assert ledger.pending.take(a_retry_batch(), [a_chunk(0, "retry-1")], [1])
        assert not ledger.settlement.set_aside("batch-1", "settling", [old], "000000", new)
        assert [file.key for file in rival.files.list_for_batch("batch-1", "settlement")] == ["000000"]
        settle(ledger, "batch-2", runner="other")
        ledger.pending.add([a_pending(batch_id="batch-2")])
        assert ledger.settlement.set_aside("batch-2", "settling", [], "", replace(new, batch_id="batch-2"))
        assert rival.pending.list_for_batch("batch-2") == []
        assert len(rival.pending.list_for_batch("batch-1")) == 2
        assert [file.key for file in rival.files.list_for_batch("batch-2", "settlement")] == ["000001"]

    def test_records_of_a_replaced_settlement_are_refused(self, ledger: Ledger, rival: Ledger) -> None:
        """A stage that works on a batch as it was before it was settled again records, adds, commits nothing."""
        settle(ledger)
        old, new = (a_file(key=key, kind="settlement") for key in ("000000", "000001"))
        entries = a_file(key="000000", kind="dead_letter")
        assert ledger.files.record(old, "settling", "000000")
        assert ledger.files.record(entries, "settling", "000000")
        assert ledger.pending.add([a_pending()], "000000") == 1
        assert rival.settlement.set_aside("batch-1", "settling", [], "000000", new)
        assert [rival.files.list_for_batch("batch-1", "dead_letter"), rival.pending.find()] == [[], []]

        for late in (
            lambda: ledger.files.record(old, "settling", "000000"),
            lambda: ledger.files.record(replace(old, key="000002"), "settling", "000000"),
            lambda: ledger.files.record(entries, "settling", "000000"),
            lambda: ledger.pending.add([a_pending()], "000000"),
            lambda: ledger.settlement.set_aside("batch-1", "settling", [], "000000", replace(new, key="000003")),
            lambda: ledger.settlement.commit("batch-1", "flights", [], after(9), "000000"),
            lambda: ledger.settlement.prove_current("batch-1", "000000"),
        ):
            with pytest.raises(SettledAgainError, match="batch-1"):
                late()
        assert rival.files.list_for_batch("batch-1", "settlement") == [new]
        assert [rival.files.list_for_batch("batch-1", "dead_letter"), rival.pending.find()] == [[], []]
        assert rival.batches.get("batch-1").state == "settling"
        assert rival.pending.add([a_pending()], "000001") == 1
        assert rival.settlement.commit("batch-1", "flights", [], after(9), "000001")
