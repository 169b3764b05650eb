"""Rows for tests of the ledger: one normal value of each record, to be changed where a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from eventbridge.event.ids import Fingerprint
from eventbridge.ledger import Ledger
from eventbridge.model.batch import Batch, BatchFile, Range
from eventbridge.model.chunk import Chunk, Piece
from eventbridge.model.file_detail import LandedRange, RoutedPiece, RoutedShare, RoutedSlice
from eventbridge.model.partition import Partition
from eventbridge.model.pending import DueTarget, PendingDeliveries

START = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
PARTITIONS = [Partition("flights", "", 0), Partition("flights", "", 1)]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def pass_seconds(self, seconds: float) -> datetime:
        """Move the clock on and return the new time."""
        self.time += timedelta(seconds=seconds)
        return self.time


def after(seconds: float) -> datetime:
    """Return a time so long after the clock's start."""
    return START + timedelta(seconds=seconds)


def a_batch(batch_id: str = "batch-1", **changes: Any) -> Batch:
    """Return a planned normal batch of runner `flights`."""
    return replace(Batch(batch_id, "normal", "flights", "flights-bus", "planned", "cafe", START), **changes)


def a_retry_batch(batch_id: str = "retry-1", **changes: Any) -> Batch:
    """Return a batch of kind retry as planning makes it: routed, with a deadline in a minute."""
    return a_batch(batch_id, kind="retry", bus="", state="routed", deadline_at=after(60), **changes)


def some_ranges() -> list[Range]:
    """Return a range in each of two partitions."""
    return [Range(PARTITIONS[0], 10, 20), Range(PARTITIONS[1], 7, 7)]


def a_file(batch_id: str = "batch-1", key: str = "0", **changes: Any) -> BatchFile:
    """Return a buffer file of a range with a gap."""
    landed = LandedRange(
        partition=Partition("flüge", "", 1), start=0, end=12, read=10, valid=10, size=900, gaps=((3, 5),)
    )
    return replace(BatchFile(batch_id, "buffer", key, f"buffer/{key}.parquet", 10, landed), **changes)


def a_slice(**changes: Any) -> RoutedSlice:
    """Return a slice of a budgeted rule and of a target with a failure, a fingerprint of 64 bits and an early piece."""
    pieces = (RoutedPiece("eventbridge.high", 750, "late", "crm", "0-8", 9, 900, 3, 1_772_366_400_000_000),)
    made = RoutedSlice(
        file="buffer/0.parquet",
        row_from=0,
        row_to=12,
        rows_in=10,
        matched={"late/crm": Fingerprint(10, 2**63, 2**64 - 1)},
        failed={"late/crm": 1},
        failed_rows="9",
        pieces=pieces,
        clears=1,
        candidate_events={"expensive": "1-3"},
    )
    return structs.replace(made, **changes)


def a_share() -> RoutedShare:
    """Return a budgeted rule's share of which a part is left, and its rule on hold."""
    some = (("buffer/0.parquet", "1"),)
    return RoutedShare(
        rule="expensive", done=some, rejected=some, left=(("buffer/0.parquet", "2-3"),), reason="budget", error="loops"
    )


def a_piece(**changes: Any) -> Piece:
    """Return a piece that two earlier batches tried."""
    lineage = (("batch-0", 3), ("retry-0", 0))
    return replace(Piece("deliveries/1.parquet", "0-9", 10, 900, "late", "crm", 2, 1.5, lineage, 4), **changes)


def a_chunk(chunk_id: int = 0, batch_id: str = "batch-1", **changes: Any) -> Chunk:
    """Return a chunk of two unclaimed pieces."""
    pieces = (a_piece(), a_piece(rows="12", count=1, pending_id=None))
    return replace(Chunk(batch_id, chunk_id, "eventbridge.high", 750, pieces, 11, 990, map_index=chunk_id), **changes)


def a_pending(due_in_seconds: float = 5, **changes: Any) -> PendingDeliveries:
    """Return deliveries of batch-1 that are to be tried again after that time, and expire after an hour."""
    files = (("deliveries/1.parquet", "0-2,7"), ("deliveries/2.parquet", "1"))
    row = PendingDeliveries(
        "batch-1", 0, "flights", "late", "crm", "retry_scheduled", 1, after(due_in_seconds), files, 5, 450
    )
    return replace(replace(row, lineage=(("batch-1", 0),), expires_at=after(3600)), **changes)


def route(ledger: Ledger, batch_id: str = "batch-1", chunks: int = 2, **changes: Any) -> None:
    """Bring a new batch to state routed."""
    assert ledger.batches.plan(a_batch(batch_id, **changes), some_ranges())
    assert ledger.batches.move(batch_id, "planned", "buffered")
    assert ledger.chunks.publish(batch_id, after(60), [a_chunk(number, batch_id) for number in range(chunks)])


def settle(ledger: Ledger, batch_id: str = "batch-1", **changes: Any) -> None:
    """Bring a new batch to state settling."""
    route(ledger, batch_id, **changes)
    assert ledger.settlement.begin(batch_id)


def register(ledger: Ledger) -> None:
    """Have the offsets of runner `flights` stand where `some_ranges` start."""
    ledger.offsets.register("flights", "flights-bus", {taken.partition: taken.start for taken in some_ranges()})


def claimed_chunk(ledger: Ledger) -> Chunk:
    """Return chunk 0 of a new batch, claimed."""
    route(ledger)
    chunk = ledger.chunks.claim("batch-1", 0, "host:1")
    assert chunk is not None
    return chunk


def due(
    ledger: Ledger, seconds: float, target: str = "crm", limit_rows: int = 100, runner: str | None = None
) -> list[int]:
    """Return the ids of the rows of rule `late` that are due then."""
    found = ledger.due.rows(after(seconds), "late", target, limit_rows, runner)
    return [row.pending_id for row in found if row.pending_id is not None]


def names(targets: Sequence[DueTarget]) -> list[tuple[str, str]]:
    """Return (rule, target) of each."""
    return [(each.rule, each.target) for each in targets]
