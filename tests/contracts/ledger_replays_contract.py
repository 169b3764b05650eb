"""What a ledger must do with archived events that are delivered again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contracts.ledger_samples import a_file, a_retry_batch, after

from eventbridge.errors import NotFoundError
from eventbridge.ledger import Ledger
from eventbridge.model.batch import BatchState
from eventbridge.model.redelivery import Replay, Replayed, ReplayPart, ReplayPosition


def a_replay(name: str = "replay-1", **changes: object) -> Replay:
    """Return a replay of ten seconds of a bus."""
    parts = (ReplayPart("flights", "f00d"), ReplayPart("night", "beef", "late", "crm", False))
    row = Replay(name, f"by {name}", "flights", after(0), after(10), {"as_of": "current"}, parts, after(20), after(20))
    return replace(row, **changes)  # type: ignore[arg-type]


def searched(sequence: int = 0, batch_id: str | None = "batch-1") -> Replayed:
    """Return rows of an archive file that were looked through, and partly taken."""
    return Replayed("replay-1", sequence, "buffer/a.parquet", 0, 0, 10, "0-2", 3, batch_id)


def move(ledger: Ledger, seen: Replay, batch_id: str, state: BatchState = "routed") -> bool:
    """Move a replay on, with a batch."""
    batch = replace(a_retry_batch(batch_id), kind="replay", bus="flights", replay_id="replay-1", state=state)
    position = ReplayPosition(0, "buffer/a.parquet", 10, after(0).isoformat())
    return ledger.replays.move(seen, position, after(30), [searched(seen.sequence, batch_id)], batch, a_file(batch_id))


class ReplaysContract:
    """What a ledger must do with replays."""

    def test_a_run_begins_one_replay(self, ledger: Ledger, rival: Ledger) -> None:
        """A second request under the same name returns the existing replay, whatever it asks for."""
        begun = ledger.replays.begin(a_replay())

        assert rival.replays.begin(a_replay("replay-2", run=begun.run, rate=3.0)) == begun == a_replay()
        assert rival.replays.get("replay-1") == rival.replays.find_for_run(begun.run) == begun
        assert (ledger.replays.all(), ledger.replays.find_for_run("nobody")) == ([begun], None)
        with pytest.raises(NotFoundError):
            ledger.replays.get("replay-2")

    def test_of_two_that_move_a_replay_one_does(self, ledger: Ledger, rival: Ledger) -> None:
        """The other one's batch is not planned at all, and nothing of what it looked through is noted."""
        begun = ledger.replays.begin(a_replay())

        assert move(ledger, begun, "batch-1")
        assert not move(rival, begun, "batch-2")
        with pytest.raises(NotFoundError):
            rival.batches.get("batch-2")
        moved = rival.replays.get("replay-1")
        assert (moved.sequence, moved.position.row, moved.next_at) == (1, 10, after(30))
        assert ledger.replays.searched("replay-1") == ledger.replays.list_taken_by("batch-1") == [searched()]
        assert [each.batch_id for each in rival.replays.open_batches("replay-1")] == ["batch-1"]

    def test_a_replay_that_is_paused_or_ended_does_not_move(self, ledger: Ledger, rival: Ledger) -> None:
        """A paused replay continues when it is resumed, an ended one never."""
        begun = ledger.replays.begin(a_replay())

        assert rival.replays.set_state("replay-1", "running", "paused")
        assert not rival.replays.set_state("replay-1", "running", "paused")
        assert not move(ledger, begun, "batch-1")
        assert ledger.replays.set_state("replay-1", "paused", "running")
        assert move(ledger, begun, "batch-1")
        assert rival.replays.end("replay-1", "cancelled")
        assert not ledger.replays.end("replay-1", "done")
        assert not move(ledger, ledger.replays.get("replay-1"), "batch-2")

    def test_replays_that_keep_delivery_ids_are_known(self, ledger: Ledger) -> None:
        """A replay with new ids does not, nor does what is not a replay."""
        ledger.replays.begin(a_replay())
        ledger.replays.begin(a_replay("replay-2", new_ids=False))

        assert [ledger.replays.keeps_delivery_ids(each) for each in ("replay-1", "replay-2", "redrive-1")] == [
            False,
            True,
            False,
        ]

    def test_a_paused_replay_continues_in_another_run(self, ledger: Ledger, rival: Ledger) -> None:
        """It belongs to that run from then on; a running or ended replay is not handed over."""
        ledger.replays.begin(a_replay())

        assert not rival.replays.hand_over("replay-1", "another run")
        assert ledger.replays.set_state("replay-1", "running", "paused")
        assert rival.replays.hand_over("replay-1", "another run")
        assert not ledger.replays.hand_over("replay-1", "a third run")
        assert ledger.replays.find_for_run("by replay-1") is None
        found = ledger.replays.find_for_run("another run")
        assert found is not None
        assert (found.replay_id, found.state) == ("replay-1", "running")

    def test_a_replay_without_a_process_is_known(self, ledger: Ledger, rival: Ledger) -> None:
        """A replay has a process while it runs or has an unrouted batch; planning, waiting and resuming renew it."""
        begun = ledger.replays.begin(a_replay())
        ledger.replays.begin(a_replay("replay-2", state="paused", next_at=after(-10)))

        def left(seconds: float) -> list[str]:
            return [each.replay_id for each in rival.replays.unattended(after(seconds))]

        assert (left(20), left(21)) == ([], ["replay-1"])
        assert move(ledger, begun, "batch-1", "buffered")
        assert (left(30), left(31)) == ([], ["replay-1"])
        ledger.replays.defer("replay-1", after(40))
        assert ledger.replays.end("replay-1", "cancelled")
        assert (left(40), left(41)) == ([], ["replay-1"])
        assert ledger.batches.move("batch-1", "buffered", "routed")
        assert left(41) == []
        assert ledger.replays.set_state("replay-2", "paused", "running")
        assert rival.replays.get("replay-2").next_at == ledger.now()
