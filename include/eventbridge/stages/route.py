"""Stage route: every landed event against every rule, once; what matched becomes delivery files and chunks."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Protocol

from eventbridge.errors import SparkError
from eventbridge.flow import ChunkLimits, ChunkPlan, PoolSlots, RoutedPiece, cut_chunks
from eventbridge.ledger.records import Batch, BatchFile, Chunk, Piece
from eventbridge.stages.budget import PrepareBudget
from eventbridge.stages.buffer import ROW_GROUP_ROWS
from eventbridge.stages.route_slice import RouteJob, Slice, SliceResult
from eventbridge.stages.workplace import Workplace

__all__ = ["RouteJob", "Router", "Slice", "SliceResult", "route", "slices_of"]

#: Row groups per slice once a batch has more than `_SMALL_BATCH_GROUPS`: a task costs 30 ms beside its work.
#: A small batch is cut finer, so that two workers share it.
_GROUPS_PER_SLICE = 2
_SMALL_BATCH_GROUPS = 4

#: The pool that every Airflow has.
_DEFAULT_POOL = "default_pool"


class Router(Protocol):
    """Where slices are routed: in this process or on Spark."""

    def route_slices(self, job: RouteJob, slices: Sequence[Slice]) -> Iterator[SliceResult]:
        """Route every slice and yield its result as it is finished, in any order.

        Raises SparkError where Spark cannot be reached or a slice fails; what was yielded before stays valid.
        """


def route(work: Workplace, batch_id: str, router: Router, pools: Mapping[str, PoolSlots] | None = None) -> list[int]:
    """Route what is not routed yet of a buffered batch, publish its chunks; return those to push, by map index.

    Each finished slice is recorded as it arrives, so a run that dies loses only what was under way. Called again it
    returns the stored list; nothing before the batch is buffered, and nothing once it is past its deadline or settled.
    `pools` holds the Airflow pools as they stand, None outside Airflow: a chunk of a pool that is not among them goes
    to `default_pool`, as a task in a pool that does not exist would wait for ever.
    Raises SparkError where a slice cannot be routed, InfrastructureError when the prepare budget is spent.
    """
    batch = work.ledger.batch(batch_id)
    if batch.state == "buffered":
        if _route_slices(work, batch, router):
            _publish(work, batch, pools)
        batch = work.ledger.batch(batch_id)
    if batch.state != "routed" or batch.deadline_at is None or batch.deadline_at <= work.ledger.now():
        return []
    chunks = [chunk for chunk in work.ledger.chunks(batch_id) if chunk.map_index is not None]
    return [chunk.chunk_id for chunk in sorted(chunks, key=lambda chunk: chunk.map_index or 0)]


def slices_of(files: Sequence[BatchFile]) -> list[Slice]:
    """Return the slices of a batch's buffer files, the same at every try; they begin where row groups do."""
    small = sum(file.rows for file in files) <= _SMALL_BATCH_GROUPS * ROW_GROUP_ROWS
    step = ROW_GROUP_ROWS * (1 if small else _GROUPS_PER_SLICE)
    return [
        Slice(f"{file.key}/{start:06d}", file.path, start, min(start + step, file.rows))
        for file in files
        if file.path is not None
        for start in range(0, file.rows, step)
    ]


def _route_slices(work: Workplace, batch: Batch, router: Router) -> bool:
    """Route and record the slices that are not recorded; False: the batch is not `buffered` any more."""
    wanted = slices_of(work.ledger.files(batch.batch_id, "buffer"))
    recorded = {file.key for file in work.ledger.files(batch.batch_id, "delivery")}
    missing = [piece for piece in wanted if piece.slice_id not in recorded]
    if not missing:
        return True
    budget = PrepareBudget(work, "route", batch.batch_id)
    with closing(_results(router, _job(work, batch), missing)) as results:
        for result in results:
            file = BatchFile(batch.batch_id, "delivery", result.slice_id, result.path, result.rows, result.detail)
            # Not inserted: somebody else recorded this slice first, and ours is garbage; or the batch has moved on.
            if not work.ledger.record_file(file, while_state="buffered") and not _still_buffered(work, batch):
                return False
            recorded.add(result.slice_id)
            budget.progressed()
            if len(recorded) < len(wanted):
                budget.check()
    left = [piece.slice_id for piece in wanted if piece.slice_id not in recorded]
    if left:
        raise SparkError(f"{len(left)} of {len(missing)} slices of batch {batch.batch_id} came back without a result.")
    return True


def _results(router: Router, job: RouteJob, slices: Sequence[Slice]) -> Generator[SliceResult, None, None]:
    # A generator of our own: a router may give any iterator, and only generators have close().
    yield from router.route_slices(job, slices)


def _still_buffered(work: Workplace, batch: Batch) -> bool:
    return work.ledger.batch(batch.batch_id).state == "buffered"


def _job(work: Workplace, batch: Batch) -> RouteJob:
    settings = work.settings
    return RouteJob(
        batch_id=batch.batch_id,
        runner=batch.runner,
        bus=batch.bus,
        rule_set=batch.rule_set,
        planned_at=batch.planned_at,
        store_uri=work.store.uri,
        attempt=uuid.uuid4().hex,
        event_max_bytes=settings.event_max_bytes,
        piece_max_deliveries=settings.chunk_max_deliveries,
        piece_max_bytes=settings.chunk_max_bytes,
        replay_id=batch.replay_id,
    )


def _publish(work: Workplace, batch: Batch, pools: Mapping[str, PoolSlots] | None) -> None:
    settings = work.settings
    limits = ChunkLimits(
        max_deliveries=settings.chunk_max_deliveries,
        max_bytes=settings.chunk_max_bytes,
        max_handed_out=settings.batch_max_chunks,
        pools=pools,
    )
    statuses = {key: status.state for key, status in work.ledger.target_statuses().items()}
    plans = cut_chunks(_pieces(work.ledger.files(batch.batch_id, "delivery"), pools), limits, statuses)
    chunks = [_chunk(batch, index, plan) for index, plan in enumerate(plans)]
    deadline_at = work.ledger.now() + timedelta(seconds=settings.batch_deadline_seconds)
    work.ledger.publish_chunks(batch.batch_id, deadline_at, chunks)


def _pieces(files: Sequence[BatchFile], pools: Mapping[str, PoolSlots] | None) -> Iterator[RoutedPiece]:
    for file in files:
        for asked, weight, rule, target, rows, count, size in file.detail["pieces"]:
            if file.path is not None:
                pool = asked if pools is None or asked in pools else _DEFAULT_POOL
                yield RoutedPiece(pool, weight, rule, target, file.path, rows, count, size)


def _chunk(batch: Batch, chunk_id: int, plan: ChunkPlan) -> Chunk:
    pieces = tuple(
        Piece(piece.file, piece.rows, piece.count, piece.size, piece.rule, piece.target) for piece in plan.pieces
    )
    # Those handed out come first, so a chunk's id is its map index too.
    map_index = chunk_id if plan.handed_out else None
    return Chunk(
        batch.batch_id,
        chunk_id,
        plan.pool,
        plan.weight,
        pieces,
        rows=plan.count,
        size=plan.size,
        handed_out=plan.handed_out,
        map_index=map_index,
        held=plan.held,
    )
