"""What a ledger must do with dead letters that are delivered again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contracts.ledger_samples import a_chunk, a_file, a_retry_batch, after

from eventbridge.errors import NotFoundError
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch
from eventbridge.model.redelivery import RECORDED, Redrive, Redriven


def a_redrive(name: str = "redrive-1", **changes: object) -> Redrive:
    """Return a redrive of everything of one rule."""
    row = Redrive(name, f"by {name}", {"rule": "late", "names": ["0"]}, after(0), after(0), rate=2.5)
    return replace(row, **changes)  # type: ignore[arg-type]


def taken(sequence: int = 0, batch_id: str = "batch-1", **changes: object) -> Redriven:
    """Return rows of a dead letter file."""
    row = Redriven("dead_letters/a.parquet", sequence, "redrive-1", batch_id, "0-2", 3)
    return replace(row, **changes)  # type: ignore[arg-type]


def plan(ledger: Ledger, batch_id: str, *entries: Redriven) -> bool:
    """Plan a batch of a redrive, whose next one comes a second later."""
    batch: Batch = replace(a_retry_batch(batch_id), kind="redrive")
    file = a_file(batch_id, kind="delivery")
    return ledger.redrives.take(batch, file, [a_chunk(0, batch_id)], entries, after(1))


class RedrivesContract:
    """What a ledger must do with redrives."""

    def test_a_run_begins_one_redrive(self, ledger: Ledger, rival: Ledger) -> None:
        """A second request under the same name returns the existing redrive, whatever it asks for."""
        begun = ledger.redrives.begin(a_redrive())

        assert rival.redrives.begin(a_redrive("redrive-2", run=begun.run, rate=None)) == begun == a_redrive()
        assert rival.redrives.get("redrive-1") == begun
        assert ledger.redrives.all() == [begun]
        with pytest.raises(NotFoundError):
            ledger.redrives.get("redrive-2")

    def test_a_redrive_recorded_by_a_server_is_listed_until_it_ends(self, ledger: Ledger, rival: Ledger) -> None:
        """The oldest first; what anybody else began is not."""
        ledger.redrives.begin(a_redrive())
        for number, name in enumerate(("second", "first")):
            ledger.redrives.begin(a_redrive(name, run=f"{RECORDED}page, ann, {name}", started_at=after(-number)))
        rival.redrives.defer("second", after(30))

        assert [each.redrive_id for each in rival.redrives.recorded()] == ["first", "second"]
        assert rival.redrives.recorded()[1].next_at == after(30)
        ledger.redrives.end("first", "done")
        assert [each.redrive_id for each in rival.redrives.recorded()] == ["second"]

    def test_dead_letters_are_taken_once(self, ledger: Ledger, rival: Ledger) -> None:
        """If two batches take the same sequence number of a file, one gets it; the other one is not planned at all."""
        ledger.redrives.begin(a_redrive())

        assert plan(ledger, "batch-1", taken())
        other = taken(0, "batch-2")
        assert not plan(rival, "batch-2", taken(0, "batch-2", file="dead_letters/b.parquet"), other)
        with pytest.raises(NotFoundError):
            rival.batches.get("batch-2")
        assert rival.redrives.list_taken() == {"dead_letters/a.parquet": [taken()]}
        assert plan(rival, "batch-2", taken(1, "batch-2", rows="3"))
        assert ledger.redrives.list_taken_by("batch-2") == [taken(1, "batch-2", rows="3")]
        assert ledger.redrives.get("redrive-1").next_at == after(1)
        assert (ledger.batches.get("batch-1").state, len(ledger.chunks.list_for_batch("batch-1"))) == ("routed", 1)
        assert [file.path for file in ledger.files.list_for_batch("batch-1", "delivery")] == ["buffer/0.parquet"]

    def test_an_ended_redrive_plans_nothing(self, ledger: Ledger, rival: Ledger) -> None:
        """Once cancelled, or done, it stays so, and no batch of it is planned."""
        ledger.redrives.begin(a_redrive())

        assert rival.redrives.end("redrive-1", "cancelled")
        assert not ledger.redrives.end("redrive-1", "done")
        assert not plan(ledger, "batch-1", taken())
        assert (ledger.redrives.get("redrive-1").state, ledger.redrives.list_taken()) == ("cancelled", {})
