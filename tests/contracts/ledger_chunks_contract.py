"""What every ledger must do with chunks: a process that takes over raises the claim, and the former one loses it."""

from __future__ import annotations

import pytest
from contracts.ledger_samples import (
    Clock,
    a_batch,
    a_chunk,
    a_file,
    a_piece,
    after,
    register,
    route,
    settle,
    some_ranges,
)

from eventbridge.errors import NotFoundError
from eventbridge.ledger import Ledger
from eventbridge.ledger.chunks import ChunkEnd
from eventbridge.model.batch import BatchFile
from eventbridge.model.chunk import ChunkTotal, LiveClaim


def segment(claim: int, number: int = 0, batch_id: str = "batch-1") -> BatchFile:
    """Return an outcome segment of chunk 0."""
    return a_file(batch_id, f"0-{claim}-{number}", kind="outcome", detail=None)


class ChunksContract:
    """The part about chunks."""

    def test_chunks_come_back_as_they_were_published(self, ledger: Ledger, rival: Ledger) -> None:
        """Every field of a chunk and its pieces, lineage included, survives; the batch is routed with its deadline."""
        ledger.batches.plan(a_batch(), [])
        ledger.batches.move("batch-1", "planned", "buffered")
        chunks = [
            a_chunk(0),
            a_chunk(1, pieces=(a_piece(lineage=()),), handed_out=False, map_index=None, hold_reason="pool closed"),
        ]

        assert ledger.chunks.publish("batch-1", after(60), [chunks[1], chunks[0]])
        assert rival.chunks.list_for_batch("batch-1") == chunks
        assert rival.chunks.get("batch-1", 1) == chunks[1]
        assert rival.batches.get("batch-1") == a_batch(state="routed", deadline_at=after(60))

    def test_one_of_two_routers_publishes(self, ledger: Ledger, rival: Ledger) -> None:
        """The later list of chunks is thrown away whole, the deadline with it."""
        route(ledger, chunks=1)

        assert not rival.chunks.publish("batch-1", after(90), [a_chunk(5)])
        assert [chunk.chunk_id for chunk in rival.chunks.list_for_batch("batch-1")] == [0]
        assert rival.batches.get("batch-1").deadline_at == after(60)

    def test_a_batch_without_chunks_is_published(self, ledger: Ledger) -> None:
        """Nothing matched: the batch is routed and has no chunks."""
        route(ledger, chunks=0)

        assert ledger.chunks.list_for_batch("batch-1") == []
        assert ledger.batches.get("batch-1").state == "routed"

    def test_five_hundred_chunks_are_published_at_once(self, ledger: Ledger) -> None:
        """A backlog's batch is one transaction too."""
        route(ledger, chunks=500)

        assert len(ledger.chunks.list_for_batch("batch-1")) == 500
        assert ledger.chunks.counts() == {"new": 500}

    def test_chunks_handed_out_are_summed_by_pool(self, ledger: Ledger) -> None:
        """Chunks, deliveries and bytes of each pool; not what is withheld or on hold."""
        route(ledger, chunks=0, batch_id="batch-0", runner="others")
        assert ledger.batches.plan(a_batch("batch-1"), some_ranges())
        assert ledger.batches.move("batch-1", "planned", "buffered")
        rest = {"handed_out": False, "map_index": None}
        chunks = [
            a_chunk(0),
            a_chunk(1),
            a_chunk(2, pool="eventbridge.low"),
            a_chunk(3, **rest),
            a_chunk(4, **rest, hold_reason="x"),
        ]
        assert ledger.chunks.publish("batch-1", after(60), chunks)

        assert ledger.chunks.totals("batch-1") == [
            ChunkTotal("eventbridge.high", 2, 22, 1980),
            ChunkTotal("eventbridge.low", 1, 11, 990),
        ]
        assert ledger.chunks.withheld_pieces("batch-1") == [("eventbridge.high", piece) for piece in a_chunk().pieces]
        assert ledger.chunks.totals("batch-0") == []
        assert ledger.chunks.withheld_pieces("batch-0") == []

    def test_a_claim_starts_the_chunk(self, ledger: Ledger, clock: Clock) -> None:
        """The claimed chunk names its worker, the time of the claim and its number."""
        route(ledger)
        clock.pass_seconds(3)

        chunk = ledger.chunks.claim("batch-1", 1, "host:17")

        assert chunk == a_chunk(1, claim=1, state="started", worker="host:17", started_at=after(3))
        assert chunk == ledger.chunks.get("batch-1", 1)
        assert ledger.chunks.get("batch-1", 0).claim == 0

    def test_it_is_known_which_targets_are_in_the_chunks_that_pushes_handle(self, ledger: Ledger) -> None:
        """A chunk may have pieces of several batches; a withheld one belongs to no worker."""
        crm, mail = (a_piece(rule="orders", target=target) for target in ("crm", "mail"))
        chunks = [
            a_chunk(0, pieces=(crm, mail, crm)),
            a_chunk(1, pieces=(crm,)),
            a_chunk(2, pieces=(mail,), handed_out=False, map_index=None),
        ]
        ledger.batches.plan(a_batch(), [])
        ledger.batches.move("batch-1", "planned", "buffered")
        assert ledger.chunks.publish("batch-1", after(60), chunks)

        found = ledger.chunks.targets("batch-1")

        assert found == {0: {("orders", "crm"), ("orders", "mail")}, 1: {("orders", "crm")}}

    def test_a_chunk_that_is_not_there_is_not_found(self, ledger: Ledger) -> None:
        """A wrong number is a user's error; claiming it gives nothing."""
        route(ledger)

        with pytest.raises(NotFoundError, match="no chunk 9"):
            ledger.chunks.get("batch-1", 9)
        assert ledger.chunks.claim("batch-1", 9, "host:17") is None
        assert ledger.chunks.claim("batch-9", 0, "host:17") is None

    def test_a_second_claim_takes_the_first_ones_rights(self, ledger: Ledger, rival: Ledger) -> None:
        """A process that was overtaken can record no segment and cannot end the chunk; the overtaker can."""
        route(ledger)
        ledger.chunks.claim("batch-1", 0, "host:1")
        assert ledger.chunks.record_segment(segment(1), 0, 1)

        again = rival.chunks.claim("batch-1", 0, "host:2")

        assert again is not None
        assert again.claim == 2
        assert not ledger.chunks.record_segment(segment(1, 1), 0, 1)
        assert not ledger.chunks.end("batch-1", 0, 1, ChunkEnd("completed", 11, 0))
        assert rival.chunks.record_segment(segment(2), 0, 2)
        assert rival.chunks.end("batch-1", 0, 2, ChunkEnd("completed", 10, 1))
        assert [file.key for file in rival.files.list_for_batch("batch-1", "outcome")] == ["0-1-0", "0-2-0"]

    def test_a_claimed_chunk_is_not_taken_before_its_claim_expires(
        self, ledger: Ledger, rival: Ledger, clock: Clock
    ) -> None:
        """A claim that is renewed lasts longer; a claim that has run out, or is released, gives the chunk away."""
        route(ledger)
        assert ledger.chunks.claim("batch-1", 0, "host:1", after(6)) is not None
        assert rival.chunks.live_claims("batch-1") == [LiveClaim(0, 1, "host:1", after(6))]
        assert rival.chunks.claim("batch-1", 0, "host:2", after(6)) is None
        assert not rival.settlement.begin("batch-1")
        assert rival.batches.get("batch-1").state == "routed"

        assert ledger.chunks.renew_claim("batch-1", 0, 1, after(8))
        clock.pass_seconds(6)
        assert rival.chunks.claim("batch-1", 0, "host:2", after(12)) is None
        clock.pass_seconds(2)
        assert rival.chunks.live_claims("batch-1") == []
        second = rival.chunks.claim("batch-1", 0, "host:2", after(14))

        assert second is not None
        assert (second.claim, second.claimed_until) == (2, after(14))
        assert not ledger.chunks.renew_claim("batch-1", 0, 1, after(20))
        (found,) = ledger.chunks.live_claims("batch-1")
        assert rival.chunks.renew_claim("batch-1", 0, 2, after(16))
        assert not ledger.chunks.release_claim("batch-1", found)
        (found,) = ledger.chunks.live_claims("batch-1")
        assert ledger.chunks.release_claim("batch-1", found)
        assert ledger.chunks.claim("batch-1", 0, "host:1", after(14)) is not None

    def test_a_claim_ends_with_its_push(self, ledger: Ledger, rival: Ledger) -> None:
        """Others need not wait until it would have run out."""
        route(ledger)
        assert ledger.chunks.claim("batch-1", 0, "host:1", after(6)) is not None
        assert ledger.chunks.end("batch-1", 0, 1, ChunkEnd("timeout", 3, 2))

        assert rival.chunks.live_claims("batch-1") == []
        assert not ledger.chunks.renew_claim("batch-1", 0, 1, after(9))
        assert rival.settlement.begin("batch-1")

    def test_deliveries_sent_under_a_lost_claim_are_recorded(self, ledger: Ledger, rival: Ledger) -> None:
        """Its segment counts until the batch is settled: a delivery that was sent does not stand as not sent."""
        route(ledger)
        ledger.chunks.claim("batch-1", 0, "host:1")
        rival.chunks.claim("batch-1", 0, "host:2")
        assert not ledger.chunks.record_segment(segment(1), 0, 1)

        assert ledger.chunks.record_late_segment(segment(1))

        assert [file.key for file in rival.files.list_for_batch("batch-1", "outcome")] == ["0-1-0"]
        assert rival.settlement.begin("batch-1")
        assert not ledger.chunks.record_late_segment(segment(1, 1))

    def test_a_completed_chunk_cannot_be_claimed(self, ledger: Ledger, rival: Ledger) -> None:
        """A push that runs again finds nothing to do; after an error or a timeout it does."""
        route(ledger)
        for claim, state in enumerate(("error", "timeout", "completed"), 1):
            chunk = rival.chunks.claim("batch-1", 0, "host:2")
            assert chunk is not None
            assert chunk.claim == claim
            assert rival.chunks.end("batch-1", 0, claim, ChunkEnd(state, 0, 0))

        assert ledger.chunks.claim("batch-1", 0, "host:1") is None
        assert ledger.chunks.get("batch-1", 0).claim == 3

    def test_the_end_of_a_chunk_is_noted(self, ledger: Ledger, clock: Clock) -> None:
        """State, counts and time are kept, and the error whatever is in it; a new claim clears error and end."""
        route(ledger)
        ledger.chunks.claim("batch-1", 0, "host:1")
        end = clock.pass_seconds(4)

        assert ledger.chunks.end("batch-1", 0, 1, ChunkEnd("error", 7, 4, "odd \x00 \ud800 " + "x" * 5000))
        chunk = ledger.chunks.get("batch-1", 0)
        assert (chunk.state, chunk.succeeded, chunk.failed, chunk.ended_at) == ("error", 7, 4, end)
        assert chunk.error.startswith("odd \ufffd ? xxx")
        assert len(chunk.error) == 4000
        again = ledger.chunks.claim("batch-1", 0, "host:2")
        assert again is not None
        assert (again.error, again.ended_at) == ("", None)

    def test_settlement_freezes_the_segments(self, ledger: Ledger, rival: Ledger) -> None:
        """Once settlement has begun no segment is recorded, no chunk claimed or ended, under any claim."""
        route(ledger)
        ledger.chunks.claim("batch-1", 0, "host:1")
        assert ledger.chunks.record_segment(segment(1), 0, 1)

        assert rival.settlement.begin("batch-1")

        frozen = rival.files.list_for_batch("batch-1", "outcome")
        assert [rival.chunks.get("batch-1", number).claim for number in (0, 1)] == [2, 1]
        assert not ledger.chunks.record_segment(segment(1, 1), 0, 1)
        assert not ledger.chunks.record_segment(segment(2), 0, 2)
        assert not ledger.chunks.end("batch-1", 0, 1, ChunkEnd("completed", 11, 0))
        assert ledger.chunks.claim("batch-1", 0, "host:1") is None
        assert rival.files.list_for_batch("batch-1", "outcome") == frozen

    def test_a_chunk_whose_push_said_nothing_ended_in_error(self, ledger: Ledger, clock: Clock) -> None:
        """Settlement ends what is started, and says so; how the others ended, or that they did not begin, stays."""
        route(ledger, chunks=3)
        for number in (0, 1):
            assert ledger.chunks.claim("batch-1", number, "host:1") is not None
        ledger.chunks.end("batch-1", 1, 1, ChunkEnd("timeout", 3, 2))
        end = clock.pass_seconds(9)

        ledger.settlement.begin("batch-1")

        silent, timeout, new = ledger.chunks.list_for_batch("batch-1")
        assert (silent.state, silent.ended_at) == ("error", end)
        assert "killed" in silent.error
        assert (timeout.state, timeout.ended_at, timeout.error) == ("timeout", after(0), "")
        assert (new.state, new.ended_at, new.error) == ("new", None, "")

    def test_settlement_begins_once_and_only_from_routed(self, ledger: Ledger, rival: Ledger) -> None:
        """Of two that settle the first begins; claims are raised once; an unrouted batch is left alone."""
        settle(ledger)

        assert not rival.settlement.begin("batch-1")
        assert rival.chunks.get("batch-1", 0).claim == 1
        assert rival.batches.plan(a_batch("batch-2", runner="trains"), [])
        assert not rival.settlement.begin("batch-2")
        assert rival.batches.get("batch-2").state == "planned"

    def test_counts_are_of_what_is_in_progress(self, ledger: Ledger) -> None:
        """Chunks of committed batches are not counted; a runner's own can be asked for."""
        register(ledger)
        settle(ledger)
        ledger.settlement.commit("batch-1", "flights", [], after(1), "000000")
        route(ledger, "batch-2", chunks=3)
        route(ledger, "batch-3", chunks=1, runner="trains")
        ledger.chunks.claim("batch-2", 0, "host:1")

        assert ledger.chunks.counts() == {"new": 3, "started": 1}
        assert ledger.chunks.counts("trains") == {"new": 1}
