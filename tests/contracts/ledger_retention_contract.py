"""What a ledger must do with what is past its retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from contracts.ledger_redrives_contract import a_redrive, plan, taken
from contracts.ledger_replays_contract import a_replay
from contracts.ledger_samples import (
    START,
    a_batch,
    a_chunk,
    a_file,
    a_pending,
    a_retry_batch,
    after,
    register,
    settle,
    some_ranges,
)

from eventbridge.errors import NotFoundError
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch
from eventbridge.model.storage import BatchGroup, BatchPosition, BatchSize, Kept

GROUP = BatchGroup("flights", "flights-bus")


def committed(ledger: Ledger, batch_id: str = "batch-1", seconds: float = 0, pending: Sequence[float] = ()) -> Batch:
    """Return a new normal batch, planned at a time, committed on its bus, that left so many rows pending."""
    ranges = some_ranges() if batch_id == "batch-1" else []
    if ranges:
        register(ledger)
    assert ledger.batches.plan(a_batch(batch_id, planned_at=after(seconds)), ranges)
    assert ledger.batches.move(batch_id, "planned", "buffered")
    assert ledger.chunks.publish(batch_id, after(60), [a_chunk(number, batch_id) for number in range(2)])
    assert ledger.settlement.begin(batch_id)
    ledger.pending.add([a_pending(due, batch_id=batch_id) for due in pending])
    assert ledger.settlement.commit(batch_id, "flights", ranges, after(1), "000000")
    ledger.settlement.mark_bus_committed(batch_id)
    return ledger.batches.get(batch_id)


def take(ledger: Ledger, batch_id: str, pending_id: int) -> None:
    """Have a retry batch take a row up, and deliver it."""
    assert ledger.pending.take(a_retry_batch(batch_id, planned_at=after(100)), [], [pending_id])
    assert ledger.settlement.begin(batch_id)
    assert ledger.settlement.commit(batch_id, "flights", [], after(101), "000000")


def marked(ledger: Ledger, batch: Batch, kept: Kept) -> Batch:
    """Mark what is kept of a batch, and return it as it is then."""
    assert ledger.retention.mark_kept(batch, kept, ledger.retention.open_requests())
    return ledger.batches.get(batch.batch_id)


def whys(ledger: Ledger, batch: Batch) -> set[str]:
    """Return why a batch must not lose something."""
    return {need.why for need in ledger.retention.needs(batch)}


class RetentionContract:
    """What a ledger must do with what goes."""

    def test_expired_batches_are_found_by_group(self, ledger: Ledger) -> None:
        """Committed batches before a time, whole ones newest first, a page at a time; the others oldest first."""
        first = committed(ledger)
        rest = [committed(ledger, f"batch-{number}", number) for number in (2, 3)]
        assert ledger.batches.plan(a_batch("open", runner="night", planned_at=START), [])

        assert ledger.batches.plan(a_retry_batch(planned_at=START), [])

        # in order, so that what took something up, by a batch without a bus, goes before what it was taken from
        assert ledger.retention.groups("all") == [BatchGroup("flights", ""), GROUP, BatchGroup("night", "flights-bus")]
        found = ledger.retention.expired("all", GROUP, after(3))
        assert found == [rest[0], first]
        position = BatchPosition(rest[0].planned_at, rest[0].batch_id)
        assert ledger.retention.expired("all", GROUP, after(3), position, limit=1) == [first]
        assert ledger.retention.expired("all", BatchGroup("night", "flights-bus"), after(3)) == []
        marks = [marked(ledger, each, "archive") for each in (rest[0], first)]
        assert ledger.retention.expired("archive", GROUP, after(9)) == list(reversed(marks))
        position = BatchPosition(first.planned_at, first.batch_id)
        assert ledger.retention.expired("archive", GROUP, after(9), position) == [marks[0]]
        assert [each.batch_id for each in ledger.retention.unfinished_removals()] == ["batch-1", "batch-2"]

    def test_of_two_that_mark_a_batch_one_does(self, ledger: Ledger, rival: Ledger) -> None:
        """An uncommitted batch is not marked, nor is any batch while an unknown replay runs."""
        batch = committed(ledger)
        assert ledger.batches.plan(a_batch("open", runner="night"), [])

        assert not rival.retention.mark_kept(rival.batches.get("open"), "archive", set())
        begun = ledger.replays.begin(a_replay())
        assert not rival.retention.mark_kept(batch, "archive", set())
        assert rival.retention.mark_kept(batch, "archive", {begun.replay_id})
        assert not ledger.retention.mark_kept(batch, "archive", {begun.replay_id})

    def test_the_dependents_of_a_batch_are_listed(self, ledger: Ledger) -> None:
        """Its pending rows, the whole batches that took rows of it, and the newest, older and naming ones of it."""
        batch = committed(ledger, pending=(0,))
        assert {"it has pending deliveries or deferred matches", "it is the newest batch of its runner"} == whys(
            ledger, batch
        )
        younger = committed(ledger, "batch-2", 2)
        assert "an earlier batch of its runner is kept" in whys(ledger, younger)
        (row,) = ledger.pending.find()
        assert row.pending_id is not None
        take(ledger, "retry-1", row.pending_id)

        assert whys(ledger, batch) == {"a later batch that is kept took some of its rows"}
        assert "it took rows of a batch that is kept" in whys(ledger, ledger.batches.get("retry-1"))
        marked(ledger, ledger.batches.get("retry-1"), "archive")
        assert whys(ledger, batch) == set()

    def test_the_records_of_a_batch_are_removed_step_by_step(self, ledger: Ledger, rival: Ledger) -> None:
        """Rows of what is not kept go, those of what is kept stay; in the end the batch itself goes."""
        batch = committed(ledger, pending=(0,))
        committed(ledger, "batch-2", 2)
        (row,) = ledger.pending.find()
        assert row.pending_id is not None
        take(ledger, "retry-1", row.pending_id)

        batch = marked(ledger, batch, "dead_letters")
        assert (batch.kept, batch.remaining) == ("dead_letters", "all")
        assert ledger.retention.delete_rows(batch) >= 3, "a pending row and two chunks at least"
        assert rival.retention.delete_rows(batch) == 0
        shrunk = ledger.batches.get("batch-1")
        assert (shrunk.remaining, ledger.pending.find(), ledger.chunks.list_for_batch("batch-1")) == (
            "dead_letters",
            [],
            [],
        )
        assert ledger.batches.ranges("batch-1") == some_ranges()
        last = marked(ledger, shrunk, "nothing")
        ledger.retention.delete_rows(last)
        with pytest.raises(NotFoundError):
            rival.batches.get("batch-1")
        assert ledger.retention.unfinished_removals() == []

    def test_many_rows_go_in_small_transactions(self, ledger: Ledger) -> None:
        """However many a batch has: a writer that comes in between waits for a few of them only."""
        settle(ledger, "batch-1")
        ledger.pending.add([a_pending(number) for number in range(450)])
        for first in range(0, 450, 50):
            assert ledger.pending.take(
                a_retry_batch(f"retry-{first}"),
                [],
                [row.pending_id for row in ledger.pending.find()[first : first + 50]],  # type: ignore[misc]
            )
            assert ledger.settlement.begin(f"retry-{first}")
            assert ledger.settlement.commit(f"retry-{first}", "flights", [], after(9), "000000")
        assert ledger.settlement.commit("batch-1", "flights", [], after(9), "000000")

        assert ledger.retention.delete_rows(marked(ledger, ledger.batches.get("batch-1"), "archive")) >= 450
        assert ledger.pending.find() == []

    def test_dead_letters_are_needed_by_the_batch_that_took_them(self, ledger: Ledger) -> None:
        """As long as that one is whole; with the dead letters goes what was noted of them, and then the redrive."""
        settle(ledger, "batch-1")
        entries = replace(a_file("batch-1"), kind="dead_letter", path="dead_letters/a.parquet", detail=None)
        assert ledger.files.record(entries, "settling")
        assert ledger.settlement.commit("batch-1", "flights", [], after(1), "000000")
        request = ledger.redrives.begin(a_redrive())
        assert plan(ledger, "redrive-batch", taken(batch_id="redrive-batch"))
        assert ledger.retention.open_requests() == {request.redrive_id}
        assert ledger.redrives.end(request.redrive_id, "done")

        batch = marked(ledger, ledger.batches.get("batch-1"), "dead_letters")
        assert "a later batch that is kept took its dead letters" in whys(ledger, batch)
        assert ledger.retention.drop_ended_requests(after(10_000)) == 0, "its dead letters exist"
        ledger.retention.delete_rows(marked(ledger, batch, "manifest"))
        assert ledger.redrives.list_taken() == {}
        assert ledger.retention.drop_ended_requests(after(10_000)) == 1

    def test_the_archive_is_what_is_kept(self, ledger: Ledger) -> None:
        """Files of a batch that lost its archive are not listed, and the newest of those is returned."""
        batch = committed(ledger)
        day = (after(-1), after(9))

        assert ledger.archive.pruned_at("flights-bus", *day, "archive") is None
        marked(ledger, batch, "archive")
        assert ledger.archive.pruned_at("flights-bus", *day, "all") == batch.planned_at
        assert ledger.archive.pruned_at("flights-bus", *day, "archive") is None
        marked(ledger, ledger.batches.get("batch-1"), "dead_letters")
        assert ledger.archive.pruned_at("flights-bus", *day, "archive") == batch.planned_at
        assert ledger.archive.pruned_at("other-bus", *day, "archive") is None

    def test_the_current_change_of_a_rule_is_never_removed(self, ledger: Ledger) -> None:
        """Older changes go, with their rule sets if nothing else names them."""
        assert ledger.rules.put_in_force("first", {}, None, {"late": "v1", "early": "v1"})
        assert ledger.rules.put_in_force("second", {}, "first", {"late": "v2"})
        assert ledger.rules.put_in_force("third", {}, "second", {"late": "v3"})
        assert ledger.retention.drop_rule_changes(START) == (0, set())

        assert ledger.retention.drop_rule_changes(after(9)) == (2, {"first", "second"})
        assert {(each.rule, each.version) for each in ledger.rules.changes()} == {("late", "v3"), ("early", "v1")}
        assert [ledger.retention.is_rule_set_named(name) for name in ("first", "second", "third")] == [
            True,
            False,
            True,
        ]
        assert ledger.batches.plan(a_batch("batch-1", rule_set="second"), [])
        assert ledger.retention.is_rule_set_named("second")
        assert not ledger.retention.is_rule_set_named("second", but_by="batch-1")

    def test_a_sweep_never_goes_back(self, ledger: Ledger, rival: Ledger) -> None:
        """Each kind of sweep is noted by itself."""
        assert (ledger.retention.get_swept_through("lost"), ledger.retention.first_batch_at(START)) == (None, None)
        ledger.retention.move_sweep("lost", after(50))
        rival.retention.move_sweep("lost", after(40))

        assert (ledger.retention.get_swept_through("lost"), ledger.retention.get_swept_through("expired")) == (
            after(50),
            None,
        )
        assert ledger.batches.plan(a_batch("batch-1"), [])
        assert (ledger.retention.first_batch_at(START), ledger.retention.first_batch_at(after(1))) == (START, None)

    def test_the_size_of_a_batch_is_added_once_and_subtracted_once(self, ledger: Ledger, rival: Ledger) -> None:
        """However many commits and runs of retention are at it; what is of no batch is as it was measured last."""
        batch = committed(ledger)
        assert ledger.store_sizes.add(batch, BatchSize(deliveries=100, archive=20, dead_letters=3))
        assert not rival.store_sizes.add(batch, BatchSize(deliveries=7, archive=7, dead_letters=7))
        ledger.store_sizes.add(committed(ledger, "batch-2", 2), BatchSize(deliveries=1, archive=1, dead_letters=1))
        ledger.store_sizes.record_measured(5_000, after(4))
        ledger.store_sizes.record_measured(1_000, after(5))
        assert (ledger.store_sizes.total().total, ledger.store_sizes.total().counted_at) == (1_126, after(5))

        half = marked(ledger, batch, "dead_letters")
        for each in (ledger, rival):
            each.retention.delete_rows(half)

        assert {each.area: each.size for each in ledger.store_sizes.total().sizes} == {
            "archive": 1,
            "dead_letters": 4,
            "deliveries": 1,
            "other": 1_000,
        }
        gone = marked(ledger, ledger.batches.get("batch-1"), "nothing")
        for each in (ledger, rival):
            each.retention.delete_rows(gone)
        assert ledger.store_sizes.total().total == 1_003
