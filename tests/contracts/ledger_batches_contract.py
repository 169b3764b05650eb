"""What every ledger must do with batches, their ranges and files, offsets and the standing of targets."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from contracts.ledger_samples import (
    PARTITIONS,
    Clock,
    a_batch,
    a_file,
    a_retry_batch,
    a_share,
    a_slice,
    after,
    register,
    route,
    settle,
    some_ranges,
)

from eventbridge.errors import LedgerError, NotFoundError
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Range
from eventbridge.model.file_detail import SplitSlice, UnroutableEvent
from eventbridge.model.partition import ConsumerOffset, Partition
from eventbridge.model.rule_state import TargetStatus


class BatchesContract:
    """The part about batches, offsets and targets."""

    def test_a_ledger_keeps_its_id(self, ledger: Ledger, rival: Ledger) -> None:
        """Every opening of one ledger says the same id."""
        assert ledger.id == rival.id
        assert len(ledger.id) == 36

    def test_now_is_the_clocks(self, ledger: Ledger, clock: Clock) -> None:
        """The ledger's time is the time of the clock it was opened with."""
        clock.pass_seconds(9)

        assert ledger.now() == after(9)

    def test_an_empty_ledger_has_nothing(self, ledger: Ledger) -> None:
        """A new ledger responds to every question with nothing."""
        assert ledger.batches.find() == []
        assert ledger.batches.latest() is None
        assert ledger.batches.unfinished("flights") is None
        assert ledger.offsets.find() == []
        assert ledger.targets.statuses() == {}
        assert ledger.pending.find() == []
        assert ledger.chunks.counts() == {}

    def test_a_batch_comes_back_as_it_was_planned(self, ledger: Ledger, rival: Ledger) -> None:
        """Every field, time and range of a planned batch is what another opening reads."""
        batch = a_batch(deadline_at=after(60), replay_id="again")

        assert ledger.batches.plan(batch, some_ranges())
        assert rival.batches.get("batch-1") == batch
        assert rival.batches.unfinished("flights") == batch
        assert rival.batches.ranges("batch-1") == some_ranges()

    def test_a_files_description_is_decoded_once(self, ledger: Ledger, rival: Ledger) -> None:
        """A stage asks many times for the files of its batch; what others record meanwhile is seen nevertheless."""
        ledger.batches.plan(a_batch(), [])
        ledger.batches.plan(a_retry_batch(), [])
        assert ledger.files.record(a_file(), while_state="planned")
        (first,) = ledger.files.list_for_batch("batch-1", "buffer")
        assert rival.files.record(a_file(key="1"), while_state="planned")

        again, new = ledger.files.list_for_batch("batch-1", "buffer")

        assert again is first
        assert (first, new) == (a_file(), a_file(key="1"))
        assert ledger.files.list_for_batch("retry-1", "buffer") == []
        assert ledger.files.list_for_batch("batch-1", "buffer") == [again, new]

    def test_a_batch_is_at_work_from_its_planning_to_its_commit(self, ledger: Ledger, clock: Clock) -> None:
        """A period has it, with its files, if a part of that time is in the period, and also if it is not committed."""
        ledger.batches.plan(a_batch(), [])
        ledger.files.record(a_file(), while_state="planned")
        clock.pass_seconds(10)
        settle(ledger, "batch-2", runner="trains")
        ledger.settlement.commit("batch-2", "trains", [], after(1), "000000")
        committed_at = ledger.batches.get("batch-2").committed_at
        assert committed_at is not None

        def at_work(since: datetime, until: datetime) -> list[str]:
            return [batch.batch_id for batch in ledger.batches.list_at_work(since, until)]

        moment = timedelta(microseconds=1)
        assert at_work(after(-9), after(0)) == []
        assert at_work(after(-9), after(0) + moment) == ["batch-1", "batch-2"]
        assert at_work(committed_at, after(99)) == ["batch-1", "batch-2"]
        assert at_work(committed_at + moment, after(99)) == ["batch-1"]
        files = ledger.files.list_at_work(after(0), after(99), ["buffer"])
        assert [(each.batch_id, each.path, each.rows) for each in files] == [("batch-1", "buffer/0.parquet", 10)]
        assert ledger.files.list_at_work(after(0), after(99), ["settlement"]) == []

    def test_a_runner_has_one_normal_batch_at_a_time(self, ledger: Ledger, rival: Ledger) -> None:
        """A second normal batch is refused until the first is committed; its ranges are not added either."""
        register(ledger)
        route(ledger)

        assert not rival.batches.plan(a_batch("batch-2"), some_ranges())
        assert rival.batches.ranges("batch-2") == []
        ledger.settlement.begin("batch-1")
        assert not rival.batches.plan(a_batch("batch-2"), some_ranges())
        assert ledger.settlement.commit("batch-1", "flights", some_ranges(), after(1), "000000")
        assert rival.batches.unfinished("flights") is None
        assert rival.batches.plan(a_batch("batch-2"), [Range(PARTITIONS[0], 20, 30)])

    def test_a_normal_batch_begins_where_its_runner_stands(self, ledger: Ledger, rival: Ledger) -> None:
        """Ranges made before another batch was committed are refused, and their batch with them; a replay's are not."""
        register(ledger)
        route(ledger)
        ledger.settlement.begin("batch-1")
        ledger.settlement.commit("batch-1", "flights", some_ranges(), after(1), "000000")

        assert not rival.batches.plan(a_batch("batch-2"), some_ranges())
        assert not rival.batches.plan(a_batch("batch-2"), [Range(PARTITIONS[0], 21, 30)])
        assert [batch.batch_id for batch in ledger.batches.find()] == ["batch-1"]
        assert rival.batches.plan(a_batch("batch-3", kind="replay", replay_id="r"), some_ranges())

    def test_other_runners_and_kinds_plan_freely(self, ledger: Ledger) -> None:
        """The limit of one batch holds per runner and for normal batches only."""
        assert ledger.batches.plan(a_batch(), [])
        assert ledger.batches.plan(a_batch("batch-2", runner="trains"), [])
        assert ledger.batches.plan(a_batch("batch-3", kind="replay", replay_id="r"), [])
        assert ledger.batches.plan(a_batch("batch-4", kind="replay", replay_id="s"), [])

    def test_a_batch_that_is_not_there_is_not_found(self, ledger: Ledger) -> None:
        """A wrong id is a user's error that names it."""
        with pytest.raises(NotFoundError, match="no batch nowhere"):
            ledger.batches.get("nowhere")

    def test_batches_come_newest_first(self, ledger: Ledger) -> None:
        """The list is by time of planning, can be limited, and filtered by runner and state."""
        for number, runner in enumerate(["flights", "trains", "ships"]):
            ledger.batches.plan(a_batch(f"batch-{number}", runner=runner, planned_at=after(number)), [])
        ledger.batches.move("batch-1", "planned", "buffered")

        assert [batch.batch_id for batch in ledger.batches.find()] == ["batch-2", "batch-1", "batch-0"]
        assert [batch.batch_id for batch in ledger.batches.find(limit=1)] == ["batch-2"]
        assert [batch.batch_id for batch in ledger.batches.find(runner="flights")] == ["batch-0"]
        assert [batch.batch_id for batch in ledger.batches.find(state="buffered")] == ["batch-1"]
        assert [batch.batch_id for batch in ledger.batches.find(runner="ships", state="buffered")] == []
        latest = ledger.batches.latest()
        assert latest is not None
        assert latest.batch_id == "batch-2"

    def test_a_batch_moves_only_from_where_it_is_expected(self, ledger: Ledger, rival: Ledger) -> None:
        """Of two that move a batch from one state the first wins."""
        ledger.batches.plan(a_batch(), [])

        assert ledger.batches.move("batch-1", "planned", "buffered")
        assert not rival.batches.move("batch-1", "planned", "buffered")
        assert not rival.batches.move("batch-9", "planned", "buffered")
        assert rival.batches.get("batch-1").state == "buffered"

    def test_a_file_comes_back_as_it_was_recorded(self, ledger: Ledger, rival: Ledger) -> None:
        """Every kind of record, big numbers and odd text included, and a missing path survive; order is by key."""
        ledger.batches.plan(a_batch(), [])
        odd = UnroutableEvent("buffer/0.parquet", 4, "Zürich \x00 \U0001f6a6")
        details = [a_file().detail, None, a_slice(), a_share(), SplitSlice(((0, 6), (6, 12))), odd]
        files = [a_file(key=f"a/{number:04}", path=None, detail=detail) for number, detail in enumerate(details)]

        for file in reversed(files):
            assert ledger.files.record(file, while_state="planned")
        assert rival.files.list_for_batch("batch-1", "buffer") == files
        assert rival.files.list_for_batch("batch-1", "delivery") == []

    def test_the_first_recorder_of_a_key_wins(self, ledger: Ledger, rival: Ledger) -> None:
        """A second file under one key is refused and the first one stays; another kind has keys of its own."""
        ledger.batches.plan(a_batch(), [])

        assert ledger.files.record(a_file(), while_state="planned")
        assert not rival.files.record(a_file(path="buffer/late.parquet"), while_state="planned")
        assert rival.files.list_for_batch("batch-1", "buffer") == [a_file()]
        assert rival.files.record(a_file(kind="delivery"), while_state="planned")

    def test_a_file_is_recorded_only_in_its_state(self, ledger: Ledger, rival: Ledger) -> None:
        """A late process, after the batch has moved on, records nothing."""
        ledger.batches.plan(a_batch(), [])
        ledger.batches.move("batch-1", "planned", "buffered")

        assert not rival.files.record(a_file(), while_state="planned")
        assert not rival.files.record(a_file("batch-9"), while_state="planned")
        assert rival.files.list_for_batch("batch-1", "buffer") == []
        assert rival.files.record(a_file(), while_state="buffered")

    def test_batches_past_their_deadline_are_stale(self, ledger: Ledger) -> None:
        """Only uncommitted batches of the kinds asked for, overdue by more than the grace; longest overdue first."""
        ledger.pending.take(a_retry_batch("retry-1"), [], [])
        ledger.pending.take(replace(a_retry_batch("retry-2"), deadline_at=after(50), runner="trains"), [], [])
        ledger.pending.take(a_retry_batch("retry-3"), [], [])
        ledger.settlement.begin("retry-3")
        ledger.settlement.commit("retry-3", "flights", [], after(1), "000000")
        route(ledger)

        def stale(seconds: float, runner: str | None = None) -> list[str]:
            found = ledger.batches.overdue(after(seconds), ["retry", "redrive"], runner, grace_seconds=10)
            return [batch.batch_id for batch in found]

        assert stale(60) == []
        assert stale(60.1) == ["retry-2"]
        assert stale(70.1) == ["retry-2", "retry-1"]
        assert stale(70.1, "flights") == ["retry-1"]
        assert ledger.batches.overdue(after(70), ["retry"]) == []

    def test_a_group_starts_where_it_was_registered_first(self, ledger: Ledger, rival: Ledger) -> None:
        """Registering again adds partitions that are new and moves none."""
        ledger.offsets.register("flights", "flights-bus", {PARTITIONS[0]: 10})
        rival.offsets.register("flights", "flights-bus", {PARTITIONS[0]: 99, PARTITIONS[1]: 7})
        rival.offsets.register("flights", "flights-bus", {})

        assert ledger.offsets.committed("flights") == {PARTITIONS[0]: 10, PARTITIONS[1]: 7}
        assert ledger.offsets.committed("trains") == {}

    def test_a_runner_begins_with_its_oldest_batch(self, ledger: Ledger, rival: Ledger) -> None:
        """Of each partition of a bus; where it has none on record, it begins where it stands. Replays begin nothing."""
        ledger.offsets.register("flights", a_batch().bus, {PARTITIONS[0]: 10, PARTITIONS[1]: 7})
        ledger.offsets.register("others", a_batch().bus, {PARTITIONS[0]: 30})
        ledger.offsets.register("trains", "rail", {PARTITIONS[0]: 1})
        assert rival.batches.first_offsets(a_batch().bus) == {
            PARTITIONS[0]: {"flights": 10, "others": 30},
            PARTITIONS[1]: {"flights": 7},
        }

        assert ledger.batches.plan(a_batch(), [Range(PARTITIONS[0], 10, 20)])
        assert ledger.batches.plan(a_batch("replay", kind="replay", replay_id="r"), [Range(PARTITIONS[0], 0, 5)])
        assert rival.batches.first_offsets(a_batch().bus)[PARTITIONS[0]] == {"flights": 10, "others": 30}
        assert rival.batches.first_offsets("nowhere") == {}

    def test_an_offset_counts_on_one_log(self, ledger: Ledger, rival: Ledger) -> None:
        """The identity it was registered with stays; only where none is known can one be noted, once."""
        ledger.offsets.register("flights", "flights-bus", {PARTITIONS[0]: 10})
        rival.offsets.register(
            "flights", "flights-bus", {PARTITIONS[0]: 10, PARTITIONS[1]: 7}, {PARTITIONS[1].topic: "log-1"}
        )
        ledger.offsets.register("trains", "rail", {PARTITIONS[0]: 0})

        def identities(group: str) -> list[str]:
            return [found.bus_identity for found in rival.offsets.find(group)]

        assert identities("flights") == ["", "log-1"]
        ledger.offsets.identify_bus("flights", {PARTITIONS[0].topic: "log-2", "another": "log-4"})
        ledger.offsets.identify_bus("flights", {PARTITIONS[0].topic: "log-3"})
        assert identities("flights") == ["log-2", "log-1"]
        assert identities("trains") == [""]

    def test_offsets_say_when_they_changed(self, ledger: Ledger, clock: Clock) -> None:
        """The list holds every group, in order, with the bus and the time of the last change."""
        ledger.offsets.register("trains", "rail", {Partition("rail", "broker-a", 3): 0})
        clock.pass_seconds(1)
        ledger.offsets.register("flights", "flights-bus", {PARTITIONS[1]: 2**40})

        flights = ConsumerOffset("flights", "flights-bus", PARTITIONS[1], 2**40, "", after(1))
        trains = ConsumerOffset("trains", "rail", Partition("rail", "broker-a", 3), 0, "", after(0))
        assert ledger.offsets.find() == [flights, trains]
        assert ledger.offsets.find("trains") == [trains]

    def test_a_range_cannot_go_backwards(self, ledger: Ledger) -> None:
        """A range that ends before it starts is refused, and its batch with it."""
        with pytest.raises(LedgerError, match="forward"):
            ledger.batches.plan(a_batch(), [Range(PARTITIONS[0], 10, 9)])

        assert ledger.batches.find() == []

    def test_a_targets_status_remembers_since_when(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """A new reason for the same state keeps `since`; a new state sets it."""
        ledger.targets.set_status("late", "crm", "degraded", "slow")
        clock.pass_seconds(5)
        rival.targets.set_status("late", "crm", "degraded", "slower")

        assert ledger.targets.statuses() == {
            ("late", "crm"): TargetStatus("late", "crm", "degraded", "slower", after(0))
        }
        rival.targets.set_status("late", "crm", "disabled", "the target responded with 410")
        assert ledger.targets.statuses()["late", "crm"].since == after(5)
