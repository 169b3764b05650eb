"""Runs the route stage: matches every landed event with every rule once, and writes delivery files and chunks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from eventbridge.errors import SparkError
from eventbridge.model.batch import Batch, BatchFile
from eventbridge.model.chunk import REPLAY_LANE_POOL, REPLAY_LANE_WEIGHT, SLOW_LANE_POOL, SLOW_LANE_WEIGHT, Chunk, Piece
from eventbridge.model.file_detail import Routed
from eventbridge.model.rule_state import OperatorOverrides
from eventbridge.pipeline.route.budgeted_rules import deferred_matches, route_budgeted_rules, rules_routed_later
from eventbridge.pipeline.route.tries import ALL_SLICES, Canary, leaves, result_file, route_one_by_one, try_together
from eventbridge.policy.chunking import ChunkLimits, ChunkPlan, PlannedPiece, PoolSlots, cut_chunks, merge_pieces
from eventbridge.routing.job import RouteJob, Router, Slice, SliceResult
from eventbridge.rules import RuleSet
from eventbridge.rules.types import ChunkSize, ChunkSizes
from eventbridge.runtime.instrumented import instrumented
from eventbridge.runtime.prepare_budget import PrepareBudget
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.schemas import ROW_GROUP_ROWS

#: The number of row groups per slice if a batch has more than `_SMALL_BATCH_GROUPS`, because each slice has a fixed
#: cost of 30 ms in Spark and 3 ms in this process. In a smaller batch, each row group is a slice, so that two workers
#: share it. In a backlog, slices have up to `_MAX_GROUPS_PER_SLICE`, as long as there are `_ENOUGH_SLICES` for all
#: workers.
_GROUPS_PER_SLICE = 2
_SMALL_BATCH_GROUPS = 4
_MAX_GROUPS_PER_SLICE = 10
_ENOUGH_SLICES = 8

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: The pool and the weight of all chunks of retry, redrive and replay batches, by kind of batch.
_OWN_LANES: Mapping[str, tuple[str, int]] = {
    "retry": (SLOW_LANE_POOL, SLOW_LANE_WEIGHT),
    "redrive": (SLOW_LANE_POOL, SLOW_LANE_WEIGHT),
    "replay": (REPLAY_LANE_POOL, REPLAY_LANE_WEIGHT),
}

#: The kinds of batches that route old events again. New batches take precedence over them if both are waiting for
#: Spark.
_OLD_KINDS = ("replay", "redrive")

#: The pool that exists in every Airflow installation.
_DEFAULT_POOL = "default_pool"


@instrumented("route")
def route(
    runtime: Runtime,
    batch_id: str,
    router: Router,
    pools: Mapping[str, PoolSlots] | None = None,
    *,
    defers_budgeted: bool = False,
) -> list[int]:
    """Route the rest of a buffered batch and publish its chunks; return the ids of those to push, in order of their map
    indexes.

    Each finished slice is recorded immediately, so a run that dies loses only slices in progress. A repeated call
    returns the same ids. The result is empty before the batch is buffered, after its deadline, and once it is settled.
    `pools` are the Airflow pools, None outside Airflow. A chunk whose pool is not among them goes to `default_pool`,
    because a task in a pool that does not exist would wait forever.

    An event that cannot be routed becomes a dead letter, and the others are routed. Events beyond the budget of a
    budgeted rule become a deferred match. A batch that took deferred matches routes nothing else. Raises SparkError if
    Spark is at fault, and InfrastructureError when the prepare budget is spent.
    """
    batch = runtime.ledger.batches.get(batch_id)
    if batch.state == "buffered":
        job = job_of(runtime, batch)
        routed = batch.kind == "retry" or _route_slices(runtime, batch, job, router)
        if routed and route_budgeted_rules(runtime, batch, job, router, defers=defers_budgeted):
            _publish(runtime, batch, pools)
        batch = runtime.ledger.batches.get(batch_id)
    if batch.state != "routed" or batch.deadline_at is None or batch.deadline_at <= runtime.ledger.now():
        return []
    chunks = [chunk for chunk in runtime.ledger.chunks.list_for_batch(batch_id) if chunk.map_index is not None]
    return [chunk.chunk_id for chunk in sorted(chunks, key=lambda chunk: chunk.map_index or 0)]


def slices_of(files: Sequence[BatchFile]) -> list[Slice]:
    """Return the slices of a batch's buffer files. They begin at row groups and are the same in every try."""
    step = ROW_GROUP_ROWS * _groups_per_slice(sum(file.rows for file in files))
    return [
        Slice(f"{file.key}/{start:06d}", file.path, start, min(start + step, file.rows))
        for file in files
        if file.path is not None
        for start in range(0, file.rows, step)
    ]


def _groups_per_slice(rows: int) -> int:
    if rows <= _SMALL_BATCH_GROUPS * ROW_GROUP_ROWS:
        return 1
    return min(max(rows // (_ENOUGH_SLICES * ROW_GROUP_ROWS), _GROUPS_PER_SLICE), _MAX_GROUPS_PER_SLICE)


def _route_slices(runtime: Runtime, batch: Batch, job: RouteJob, router: Router) -> bool:
    """Route and record the unrecorded slices; return False if the batch is no longer `buffered`.

    They are routed as one job, except suspects, which may have caused a failure and are routed one at a time.
    """
    recording = _Recording(runtime, batch)
    missing = recording.missing()
    if not missing:
        return True
    canary = Canary(runtime.store, job, router)
    suspects = recording.suspects(runtime.ledger.route_tries.counts(batch.batch_id))
    others = [piece for piece in missing if piece not in suspects]
    done = try_together(runtime, job, router, canary, ALL_SLICES, others, recording.take) if others else None
    if done is False:
        return False
    if not others:
        canary.require()
    if suspects or done is None:
        return route_one_by_one(runtime, job, router, canary, recording)
    left = recording.missing()
    if left:
        raise SparkError(f"{len(left)} of {len(missing)} slices of batch {batch.batch_id} came back without a result.")
    return True


class _Recording:
    """Holds the recorded and the missing slices of a batch, and stops the stage once its prepare budget is spent."""

    def __init__(self, runtime: Runtime, batch: Batch) -> None:
        self._runtime = runtime
        self._batch = batch
        self._budget = PrepareBudget(runtime, "route", batch.batch_id)
        self._wanted = slices_of(runtime.ledger.files.list_for_batch(batch.batch_id, "buffer"))
        self._recorded = {file.key: file for file in runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")}

    def missing(self) -> list[Slice]:
        """Return the slices, or parts of them, without a result."""
        parts = [part for piece in self._wanted for part in leaves(piece, self._recorded)]
        return [part for part in parts if part.slice_id not in self._recorded]

    def suspects(self, tries: Mapping[str, int]) -> list[Slice]:
        """Return the missing slices that were already tried alone, or are parts of a slice that failed alone."""
        return [piece for piece in self.missing() if piece.slice_id in tries or piece not in self._wanted]

    def take(self, result: SliceResult) -> bool:
        """Record the result of a slice; return False if the batch is no longer `buffered`."""
        return self.record(result_file(self._batch.batch_id, result))

    def record(self, file: BatchFile) -> bool:
        """Record the result of a slice; return False if the batch is no longer `buffered`."""
        ledger, batch_id = self._runtime.ledger, self._batch.batch_id
        if ledger.files.record(file, while_state="buffered"):
            self._recorded[file.key] = file
        else:
            # Either another process recorded this slice first, so that our file is unused, or the batch is no longer
            # `buffered`.
            if ledger.batches.get(batch_id).state != "buffered":
                return False
            self._recorded |= {other.key: other for other in ledger.files.list_for_batch(batch_id, "delivery")}
        self._budget.progressed()
        if self.missing():
            self._budget.check()
        return True


def job_of(runtime: Runtime, batch: Batch) -> RouteJob:
    """Return the job that routes a batch. Tries differ only in the names of their files and in the rules `later`."""
    settings = runtime.settings
    return RouteJob(
        batch_id=batch.batch_id,
        runner=batch.runner,
        bus=batch.bus,
        rule_set=batch.rule_set,
        planned_at=batch.planned_at,
        store_uri=runtime.store.uri,
        attempt=uuid.uuid4().hex,
        event_max_size=settings.event_max_size,
        piece_max_deliveries=runtime.chunk_sizes.small.deliveries,
        piece_max_bytes=runtime.chunk_sizes.small.size,
        replay_id=""
        if batch.replay_id and runtime.ledger.replays.keeps_delivery_ids(batch.replay_id)
        else batch.replay_id,
        later=rules_routed_later(runtime, batch),
        slice_seconds=settings.route_slice_timeout,
        old=batch.kind in _OLD_KINDS,
        # A batch of deferred matches has one rule, so no other rule waits for it.
        budgeted_seconds=0.0 if batch.kind == "retry" else settings.route_total_cpu_budget,
    )


def _publish(runtime: Runtime, batch: Batch, pools: Mapping[str, PoolSlots] | None) -> None:
    settings = runtime.settings
    limits = ChunkLimits(runtime.chunk_sizes.small, settings.batch_max_chunks, pools)
    files = runtime.ledger.files.list_for_batch(batch.batch_id, "delivery")
    rules, overrides = runtime.rules_of(batch), runtime.ledger.overrides.get_effective()
    shadows = rules.shadows()
    statuses = {key: status.state for key, status in runtime.ledger.targets.statuses().items() if key not in shadows}
    sizes = _SizeOfChunk(rules, runtime.chunk_sizes)
    lanes = overridden_lanes(rules, overrides)
    plans = cut_chunks(_pieces(batch, files, pools, runtime.ledger.now(), sizes, lanes), limits, statuses, overrides)
    on_hold_seconds = max(
        (each.on_hold_seconds for each in runtime.ledger.deferred_matches.list_taken_by(batch.batch_id)), default=0.0
    )
    chunks = [_chunk(batch, index, plan, on_hold_seconds) for index, plan in enumerate(plans)]
    deadline_at = runtime.ledger.now() + timedelta(seconds=settings.batch_timeout)
    runtime.ledger.chunks.publish(batch.batch_id, deadline_at, chunks, deferred_matches(runtime, batch, files))


def _pieces(
    batch: Batch,
    files: Sequence[BatchFile],
    pools: Mapping[str, PoolSlots] | None,
    now: datetime,
    sizes: Mapping[tuple[str, str], ChunkSize],
    lanes: Mapping[str, tuple[str, int]],
) -> Iterator[PlannedPiece]:
    for file in files:
        if file.path is None or not isinstance(file.detail, Routed):
            continue
        for piece in file.detail.pieces:
            asked, weight = lanes.get(piece.rule, (piece.pool, piece.weight))
            asked, weight = _OWN_LANES.get(batch.kind, (asked, weight))
            yield PlannedPiece(
                pool=asked if pools is None or asked in pools else _DEFAULT_POOL,
                weight=weight,
                rule=piece.rule,
                target=piece.target,
                slice_id=file.key,
                file=file.path,
                rows=piece.rows,
                count=piece.count,
                size=piece.size,
                shard=piece.shard,
                early=piece.not_before is not None and now < _EPOCH + timedelta(microseconds=piece.not_before),
                chunk=sizes[piece.rule, piece.target],
            )


def overridden_lanes(rules: RuleSet, overrides: OperatorOverrides) -> dict[str, tuple[str, int]]:
    """Return the pool and weight, by rule name, of each rule whose priority an operator overrides."""
    changed = {
        name: rules.rules[name].model_copy(update={"priority": priority})
        for name, priority in overrides.priorities().items()
        if name in rules.rules
    }
    return {name: (rule.pool_name, rule.weight) for name, rule in changed.items()}


class _SizeOfChunk(dict[tuple[str, str], ChunkSize]):
    """The maximum chunk size of each target of a batch, by (rule, target), computed on first use."""

    def __init__(self, rules: RuleSet, sizes: ChunkSizes) -> None:
        self._rules = rules
        self._sizes = sizes

    def __missing__(self, key: tuple[str, str]) -> ChunkSize:
        rule, target = key
        found = self[key] = self._sizes.size_of(self._rules.rules[rule].targets[target])
        return found


def _chunk(batch: Batch, chunk_id: int, plan: ChunkPlan, on_hold_seconds: float) -> Chunk:
    pieces = tuple(
        Piece(
            piece.file, piece.rows, piece.count, piece.size, piece.rule, piece.target, on_hold_seconds=on_hold_seconds
        )
        for piece in merge_pieces(plan.pieces)
    )
    # Handed-out chunks come first, so that a chunk's id is also its map index.
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
        hold_reason=plan.hold_reason,
    )
