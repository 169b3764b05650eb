"""What every ledger must do for streaming tasks: one delivers at a time, and one without its open batch cannot change
it.
"""

from __future__ import annotations

from dataclasses import replace

from contracts.ledger_samples import PARTITIONS, Clock, a_batch, a_file, after, some_ranges

from eventbridge.ledger import Ledger
from eventbridge.ledger.airflow import last_check
from eventbridge.model.batch import BatchFile, Range
from eventbridge.model.partition import WatcherPosition
from eventbridge.model.runner import StreamingLease


def a_segment(number: int = 0) -> BatchFile:
    """Return a segment of batch-1 that a streaming task wrote."""
    return replace(a_file(key=f"streaming-{number:06d}", detail=None), kind="outcome")


class StreamingLeasesContract:
    """The part about streaming tasks and open batches."""

    def test_a_streaming_lease_has_one_holder_until_it_runs_out(
        self, ledger: Ledger, rival: Ledger, clock: Clock
    ) -> None:
        """No other task gets it before, its holder may extend it, and a task that lost it cannot."""
        assert ledger.streaming.lease("flights") is None
        assert ledger.streaming.acquire_lease("flights", "one", after(6))
        assert not rival.streaming.acquire_lease("flights", "two", after(9))
        assert rival.streaming.acquire_lease("trains", "two", after(9))
        clock.pass_seconds(4)
        assert ledger.streaming.acquire_lease("flights", "one", after(10))
        assert rival.streaming.lease("flights") == StreamingLease("flights", "one", after(10))
        clock.pass_seconds(6)
        assert rival.streaming.lease("flights") is None

        assert rival.streaming.acquire_lease("flights", "two", after(20))
        assert not ledger.streaming.acquire_lease("flights", "one", after(20))
        assert not ledger.streaming.release_lease("flights", "one")

    def test_a_streaming_lease_that_is_released_is_anybodys(self, ledger: Ledger, rival: Ledger) -> None:
        """Only its holder ends it, and the next need not wait for it to run out."""
        ledger.streaming.acquire_lease("flights", "one", after(6))

        assert not rival.streaming.release_lease("flights", "two")
        assert ledger.streaming.release_lease("flights", "one")
        assert rival.streaming.lease("flights") is None
        assert rival.streaming.acquire_lease("flights", "two", after(6))

    def test_a_streaming_lease_is_handed_over_to_the_standby(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """There is one standby at a time, as long as it says so; only the holder gives the lease away, with its
        open batch.
        """
        assert not rival.streaming.register_standby("flights", "two", after(6))
        ledger.streaming.acquire_lease("flights", "one", after(6))
        ledger.streaming.request_standby("flights", "one")
        ledger.streaming.record_open_batch("flights", "one", "batch-1")
        ledger.streaming.record_open_batch("flights", "two", "batch-2")
        assert rival.streaming.register_standby("flights", "two", after(3))
        assert not rival.streaming.register_standby("flights", "three", after(9))
        assert ledger.streaming.acquire_lease("flights", "one", after(10))
        assert rival.streaming.lease("flights") == StreamingLease(
            "flights", "one", after(10), "batch-1", True, "two", after(3)
        )
        clock.pass_seconds(4)
        assert not ledger.streaming.hand_over_lease("flights", "one", "two", after(12), "batch-1")
        assert rival.streaming.register_standby("flights", "three", after(9))
        assert not rival.streaming.hand_over_lease("flights", "two", "three", after(12), None)
        assert ledger.streaming.hand_over_lease("flights", "one", "three", after(12), "batch-1")
        assert rival.streaming.lease("flights") == StreamingLease("flights", "three", after(12), "batch-1")
        assert not ledger.streaming.acquire_lease("flights", "one", after(20))
        clock.pass_seconds(20)
        assert ledger.streaming.last_open_batch("flights") == "batch-1"

    def test_a_streaming_lease_acquired_after_expiry_has_no_standby(self, ledger: Ledger, clock: Clock) -> None:
        """The standby of the former one takes it, or is refused."""
        ledger.streaming.acquire_lease("flights", "one", after(6))
        ledger.streaming.request_standby("flights", "one")
        ledger.streaming.register_standby("flights", "two", after(30))
        clock.pass_seconds(7)
        assert ledger.streaming.acquire_lease("flights", "three", after(20))
        assert ledger.streaming.lease("flights") == StreamingLease("flights", "three", after(20))

    def test_the_last_check_of_the_watcher_is_known(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """None before the first; from then on the newest."""
        assert last_check(ledger.database.engine, 5) is None
        ledger.watcher.record_check()
        assert last_check(rival.database.engine, 5) == after(0)
        clock.pass_seconds(20)
        rival.watcher.record_check()

        assert last_check(ledger.database.engine, 5) == after(20)

    def test_one_trigger_owns_the_position_of_a_watcher(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """The first position is recorded once; a newer owner keeps it, and the older one can claim and move nothing."""
        new = WatcherPosition("orders", "flights", "", {PARTITIONS[0]: 10, PARTITIONS[1]: 7}, {"events": "log-1"})
        assert ledger.asset_watchers.own("one", new) == new
        claimed = replace(new, claimed=3)
        assert ledger.asset_watchers.claim({"one": [claimed], "stranger": [claimed]}) == {"stranger"}
        moved = replace(claimed, offsets={PARTITIONS[0]: 12, PARTITIONS[1]: 7}, sequence=2)
        other = replace(new, name="other")
        ledger.asset_watchers.move({"one": [moved, other], "stranger": [new]})

        clock.pass_seconds(5)
        assert rival.asset_watchers.own("two", new) == replace(moved, claimed_at=after(0))
        assert ledger.asset_watchers.claim({"one": [replace(moved, claimed=4)]}) == {"one"}
        ledger.asset_watchers.move({"one": [new]})
        assert rival.asset_watchers.claim({"two": [replace(moved, claimed=5)]}) == set()
        assert rival.asset_watchers.own("two", new) == replace(moved, claimed=5, claimed_at=after(5))
        assert ledger.asset_watchers.own("one", other) == other

    def test_an_open_batch_grows_with_its_segments(self, ledger: Ledger, rival: Ledger) -> None:
        """A segment and the offsets read so far are recorded together; offsets alone where nothing got a response."""
        ledger.batches.plan(a_batch(state="open"), some_ranges())

        assert ledger.streaming.record("batch-1", {PARTITIONS[0]: 25}, a_segment(0))
        assert rival.batches.ranges("batch-1") == [Range(PARTITIONS[0], 10, 25), Range(PARTITIONS[1], 7, 7)]
        assert ledger.streaming.record("batch-1", {PARTITIONS[0]: 25, PARTITIONS[1]: 9}, None)

        assert rival.batches.ranges("batch-1") == [Range(PARTITIONS[0], 10, 25), Range(PARTITIONS[1], 7, 9)]
        assert rival.files.list_for_batch("batch-1", "outcome") == [a_segment(0)]

    def test_a_runner_with_an_open_batch_plans_no_other(self, ledger: Ledger, rival: Ledger) -> None:
        """An open batch is a batch in progress: no other batch takes the same offsets."""
        ledger.batches.plan(a_batch(state="open"), some_ranges())

        assert not rival.batches.plan(a_batch("batch-2"), some_ranges())
        assert rival.batches.unfinished("flights") == a_batch(state="open")

    def test_a_streaming_task_that_lost_its_open_batch_changes_nothing(self, ledger: Ledger, rival: Ledger) -> None:
        """Found and moved to planned, it takes nothing of the streaming task that wakes; one of two moves it."""
        ledger.batches.plan(a_batch(state="open"), some_ranges())
        assert ledger.streaming.record("batch-1", {PARTITIONS[0]: 25}, a_segment(0))

        assert rival.batches.move("batch-1", "open", "planned")
        assert not ledger.batches.move("batch-1", "open", "planned")
        assert not ledger.streaming.record("batch-1", {PARTITIONS[0]: 30}, a_segment(1))
        assert not ledger.streaming.record("batch-1", {PARTITIONS[0]: 30}, None)
        assert not ledger.streaming.record("batch-9", {}, None)

        assert rival.batches.ranges("batch-1") == [Range(PARTITIONS[0], 10, 25), Range(PARTITIONS[1], 7, 7)]
        assert rival.files.list_for_batch("batch-1", "outcome") == [a_segment(0)]

    def test_nothing_of_a_refused_segment_is_recorded(self, ledger: Ledger) -> None:
        """Neither offsets nor file: if offsets go back, a partition is not the batch's, or the key is another's."""
        ledger.batches.plan(a_batch(state="open"), some_ranges())
        assert ledger.streaming.record("batch-1", {PARTITIONS[0]: 25}, a_segment(0))
        elsewhere = PARTITIONS[0]._replace(partition_id=9)

        assert not ledger.streaming.record("batch-1", {PARTITIONS[0]: 24, PARTITIONS[1]: 9}, a_segment(1))
        assert not ledger.streaming.record("batch-1", {PARTITIONS[0]: 26, elsewhere: 1}, a_segment(1))
        assert not ledger.streaming.record("batch-1", {PARTITIONS[0]: 26}, a_segment(0))

        assert ledger.batches.ranges("batch-1") == [Range(PARTITIONS[0], 10, 25), Range(PARTITIONS[1], 7, 7)]
        assert ledger.files.list_for_batch("batch-1", "outcome") == [a_segment(0)]

    def test_an_open_batch_in_which_nothing_came_is_dropped(self, ledger: Ledger, rival: Ledger) -> None:
        """As if it had never been; not one that has taken something up, has a file, or is another's now."""
        nothing = [Range(PARTITIONS[0], 10, 10), Range(PARTITIONS[1], 7, 7)]
        assert ledger.batches.plan(a_batch(state="open"), nothing)

        assert ledger.streaming.drop("batch-1")
        assert not ledger.streaming.drop("batch-1")
        assert rival.batches.unfinished("flights") is None
        assert rival.batches.ranges("batch-1") == []

        assert ledger.batches.plan(a_batch("batch-2", state="open"), nothing)
        assert ledger.streaming.record("batch-2", {PARTITIONS[0]: 11}, None)
        assert not ledger.streaming.drop("batch-2")
        assert rival.batches.move("batch-2", "open", "planned")
        assert not ledger.streaming.drop("batch-2")
        assert rival.batches.ranges("batch-2") == [Range(PARTITIONS[0], 10, 11), Range(PARTITIONS[1], 7, 7)]

        assert ledger.batches.plan(a_batch("batch-3", runner="trains", state="open"), nothing)
        assert rival.batches.move("batch-3", "open", "planned")
        assert not ledger.streaming.drop("batch-3")
        assert rival.batches.ranges("batch-3") == nothing

    def test_a_batch_follows_one_that_is_being_closed(self, ledger: Ledger, rival: Ledger) -> None:
        """It takes up what comes behind, and is its runner's, and its streaming task's open batch, once the former is
        committed.
        """
        ledger.rules.put_in_force("cafe", {}, None, {})
        ledger.streaming.acquire_lease("flights", "one", after(60))
        ledger.batches.plan(a_batch(state="open"), some_ranges())
        ledger.streaming.record_open_batch("flights", "one", "batch-1")
        following = a_batch("batch-2", state="open", follows="batch-1")
        ends = {PARTITIONS[0]: 25, PARTITIONS[1]: 7}

        assert ledger.streaming.open_following(following, ends, "one", "cafe")
        assert rival.batches.ranges("batch-1") == [Range(PARTITIONS[0], 10, 25), Range(PARTITIONS[1], 7, 7)]
        assert rival.batches.ranges("batch-2") == [Range(PARTITIONS[0], 25, 25), Range(PARTITIONS[1], 7, 7)]
        assert rival.batches.unfinished("flights") == a_batch(state="open")
        assert not rival.batches.plan(a_batch("batch-3"), some_ranges())
        assert not rival.batches.move("batch-2", "open", "planned")
        assert ledger.streaming.record("batch-2", {PARTITIONS[0]: 30}, replace(a_segment(), batch_id="batch-2"))
        assert ledger.batches.move("batch-1", "open", "planned")
        assert ledger.streaming.last_open_batch("flights") == "batch-1"

        assert ledger.batches.move("batch-1", "planned", "buffered")
        assert ledger.chunks.publish("batch-1", after(60), [])
        assert ledger.settlement.begin("batch-1")
        assert ledger.settlement.commit("batch-1", "flights", [], after(9), "0")
        assert rival.batches.unfinished("flights") == a_batch("batch-2", state="open")
        assert rival.streaming.last_open_batch("flights") == "batch-2"
        assert rival.batches.move("batch-2", "open", "planned")

    def test_a_batch_follows_only_where_its_streaming_task_stands(self, ledger: Ledger, rival: Ledger) -> None:
        """One that is not committed, ends there and has no later one; only for the lease holder, by current rules."""
        ledger.rules.put_in_force("cafe", {}, None, {})
        ends = {PARTITIONS[0]: 25, PARTITIONS[1]: 7}
        following = a_batch("batch-2", state="open", follows="batch-1")
        assert not ledger.streaming.open_following(following, ends, "one", "cafe")
        ledger.batches.plan(a_batch(state="open"), some_ranges())
        assert not ledger.streaming.open_following(following, ends, "one", "cafe")
        ledger.streaming.acquire_lease("flights", "one", after(60))
        assert not rival.streaming.open_following(following, ends, "two", "cafe")
        assert not ledger.streaming.open_following(following, ends, "one", "another")
        assert not ledger.streaming.open_following(following, {PARTITIONS[0]: 25}, "one", "cafe")
        assert not ledger.streaming.open_following(following, {**ends, PARTITIONS[0]: 19}, "one", "cafe")
        assert ledger.batches.ranges("batch-1") == some_ranges()
        assert ledger.streaming.open_following(following, ends, "one", "cafe")
        assert not ledger.streaming.open_following(replace(following, batch_id="batch-3"), ends, "one", "cafe")
        assert ledger.streaming.drop("batch-2")
        assert ledger.batches.move("batch-1", "open", "planned")
        assert not ledger.streaming.open_following(following, {**ends, PARTITIONS[0]: 26}, "one", "cafe")
        assert ledger.streaming.open_following(following, ends, "one", "cafe")
