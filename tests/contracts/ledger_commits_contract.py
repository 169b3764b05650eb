"""What every ledger must do when a batch is committed: all of it, once, from the expected offsets, or nothing."""

from __future__ import annotations

import pytest
from contracts.ledger_samples import (
    PARTITIONS,
    START,
    Clock,
    a_batch,
    a_pending,
    a_retry_batch,
    after,
    register,
    route,
    settle,
    some_ranges,
)

from eventbridge.errors import NotFoundError, ReconciliationError
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Range, ReadRange
from eventbridge.model.partition import LastMessage, Move, Partition


class CommitsContract:
    """The part about commits."""

    def test_a_commit_moves_the_offsets(self, ledger: Ledger, rival: Ledger) -> None:
        """Each partition stands at its range's end, by its last message where that is said, and the batch says when."""
        register(ledger)
        settle(ledger)
        first, *others = some_ranges()
        read = ReadRange(first.partition, first.start, first.end, LastMessage(first.end - 1, 17))

        assert ledger.settlement.commit("batch-1", "flights", [read, *others], after(9), "000000")
        assert [row.message_id for row in rival.offsets.find("flights")] == ["19@17", ""]
        assert rival.offsets.committed("flights") == {PARTITIONS[0]: 20, PARTITIONS[1]: 7}
        assert rival.offsets.find("flights")[0].changed_at == after(9)
        batch = rival.batches.get("batch-1")
        assert (batch.state, batch.committed_at, batch.bus_committed_at) == ("committed", after(9), None)

    def test_the_newest_committed_batches_say_what_they_moved(self, ledger: Ledger, rival: Ledger) -> None:
        """Of each partition: how many offsets, when the batch was planned and committed, whether it was full."""
        register(ledger)
        settle(ledger, is_full=True)
        assert rival.batches.recent_moves("flights", limit=10) == []
        ledger.settlement.commit("batch-1", "flights", some_ranges(), after(9), "000000")

        assert rival.batches.recent_moves("flights", limit=10) == [
            Move(PARTITIONS[0], 10, START, after(9), True),
            Move(PARTITIONS[1], 0, START, after(9), True),
        ]
        assert rival.batches.recent_moves("others", limit=10) == rival.batches.recent_moves("flights", limit=0) == []

    def test_a_second_commit_is_reported_as_such(self, ledger: Ledger, rival: Ledger) -> None:
        """Committing again changes nothing, the time of the commit included."""
        register(ledger)
        settle(ledger)
        ledger.settlement.commit("batch-1", "flights", some_ranges(), after(9), "000000")

        assert not rival.settlement.commit("batch-1", "flights", some_ranges(), after(10), "000000")
        assert rival.offsets.committed("flights") == {PARTITIONS[0]: 20, PARTITIONS[1]: 7}
        assert rival.batches.get("batch-1").committed_at == after(9)

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param(Range(PARTITIONS[1], 6, 9), id="starts-before-the-offset"),
            pytest.param(Range(PARTITIONS[1], 8, 9), id="starts-after-the-offset"),
            pytest.param(Range(Partition("flights", "", 2), 0, 9), id="partition-is-not-registered"),
            pytest.param(Range(PARTITIONS[1], 7, 6), id="goes-back"),
        ],
    )
    def test_an_offset_moves_only_from_the_start_of_its_range(self, ledger: Ledger, wrong: Range) -> None:
        """One range that does not fit stops the commit as a whole: no offset moves, no row closes, no state changes."""
        register(ledger)
        settle(ledger, "batch-0")
        ledger.pending.add([a_pending(batch_id="batch-0")])
        ledger.settlement.commit("batch-0", "flights", [], after(1), "000000")
        ledger.pending.take(a_retry_batch(), [], [1])
        ledger.settlement.begin("retry-1")

        with pytest.raises(
            ReconciliationError, match=f"partition {wrong.partition.partition_id}.*nothing was committed"
        ):
            ledger.settlement.commit("retry-1", "flights", [some_ranges()[0], wrong], after(9), "000000")

        assert ledger.offsets.committed("flights") == {PARTITIONS[0]: 10, PARTITIONS[1]: 7}
        assert ledger.batches.get("retry-1").state == "settling"
        assert [row.state for row in ledger.pending.find()] == ["scheduled"]
        assert ledger.settlement.commit("retry-1", "flights", some_ranges(), after(9), "000000")

    def test_only_a_settled_batch_is_committed(self, ledger: Ledger) -> None:
        """A batch that is not settled is refused loudly; one that does not exist is not found."""
        register(ledger)
        route(ledger)

        with pytest.raises(ReconciliationError, match="it is routed"):
            ledger.settlement.commit("batch-1", "flights", some_ranges(), after(9), "000000")
        with pytest.raises(NotFoundError):
            ledger.settlement.commit("batch-9", "flights", some_ranges(), after(9), "000000")
        assert ledger.offsets.committed("flights")[PARTITIONS[0]] == 10

    def test_a_commit_closes_what_its_batch_had_taken(self, ledger: Ledger, rival: Ledger) -> None:
        """The rows it took are closed in its name, other rows are left alone."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(2), a_pending(3)])
        ledger.pending.take(a_retry_batch(), [], [1, 3])
        ledger.settlement.begin("retry-1")

        assert rival.settlement.commit("retry-1", "flights", [], after(9), "000000")
        assert [(row.state, row.taken_by, row.closed_by) for row in ledger.pending.find()] == [
            ("closed", "retry-1", "retry-1"),
            ("scheduled", None, None),
            ("closed", "retry-1", "retry-1"),
        ]
        assert [row.pending_id for row in ledger.pending.list_taken_by("retry-1")] == [1, 3]
        assert ledger.pending.list_taken_targets() == set()

    def test_bus_commits_wait_until_they_are_marked(self, ledger: Ledger, clock: Clock) -> None:
        """Committed normal batches are outstanding, oldest first, until marked on the bus; the first mark counts."""
        register(ledger)
        for number in range(2):
            settle(ledger, f"batch-{number}", planned_at=after(number))
            assert ledger.settlement.bus_commits_outstanding("flights") == [
                ledger.batches.get(f"batch-{n}") for n in range(number)
            ]
            ledger.settlement.commit(f"batch-{number}", "flights", [], after(9), "000000")
        ledger.pending.take(a_retry_batch(), [], [])
        ledger.settlement.begin("retry-1")
        ledger.settlement.commit("retry-1", "flights", [], after(9), "000000")

        assert [batch.batch_id for batch in ledger.settlement.bus_commits_outstanding("flights")] == [
            "batch-0",
            "batch-1",
        ]
        marked = clock.pass_seconds(1)
        ledger.settlement.mark_bus_committed("batch-0")
        clock.pass_seconds(1)
        ledger.settlement.mark_bus_committed("batch-0")
        assert [batch.batch_id for batch in ledger.settlement.bus_commits_outstanding("flights")] == ["batch-1"]
        assert ledger.batches.get("batch-0").bus_committed_at == marked

    def test_a_batch_that_is_not_committed_is_not_marked(self, ledger: Ledger) -> None:
        """A bus commit marked too early leaves no trace that would hide the real one."""
        ledger.batches.plan(a_batch(), [])

        ledger.settlement.mark_bus_committed("batch-1")

        assert ledger.batches.get("batch-1").bus_committed_at is None
