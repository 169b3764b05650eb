"""Stores chunks in the ledger: adds a batch's chunks, claims a chunk, and performs the writes that a claim allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from eventbridge.errors import NotFoundError
from eventbridge.ledger.batches import NORMAL_UNCOMMITTED, PUBLISH_ROUTED, UNCOMMITTED, batch, is_in_state
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NOW, JsonText, Message, UtcTime, insert, metadata, one_of
from eventbridge.ledger.files import record_file
from eventbridge.ledger.routing import insert_deferred_matches
from eventbridge.ledger.targets import record_attempts
from eventbridge.model.batch import BatchFile
from eventbridge.model.chunk import Chunk, ChunkState, ChunkTotal, LiveClaim, Piece
from eventbridge.model.pending import DeferredMatch
from eventbridge.policy.breaker import Tally

delivery_chunk = sa.Table(
    "delivery_chunk",
    metadata,
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id"), nullable=False),
    sa.Column("chunk_id", sa.Integer, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("weight", sa.Integer, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("handed_out", sa.Boolean, nullable=False),
    sa.Column("map_index", sa.Integer),
    sa.Column("hold_reason", sa.Text, nullable=False),
    sa.Column("claim", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("started_at", UtcTime),
    sa.Column("ended_at", UtcTime),
    sa.Column("worker", sa.Text, nullable=False),
    sa.Column("succeeded", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("error", Message, nullable=False),
    sa.Column("cpu", sa.BigInteger, nullable=False, server_default="0"),  # CPU time of its pushes in microseconds
    sa.Column("claimed_until", UtcTime),  # until then, other pushes can claim it only if its holder is dead
    sa.Column("pieces", JsonText, nullable=False),  # last, because columns after a long one are slow to reach
    sa.PrimaryKeyConstraint("batch_id", "chunk_id"),
    one_of("state", ChunkState),
)

_CHUNK = (delivery_chunk.c.batch_id == sa.bindparam("of_batch")) & (
    delivery_chunk.c.chunk_id == sa.bindparam("of_chunk")
)
_CLAIM = delivery_chunk.c.claim == sa.bindparam("of_claim")

#: The chunks of a batch, in order.
CHUNKS = (
    sa.select(delivery_chunk)
    .where(delivery_chunk.c.batch_id == sa.bindparam("of_batch"))
    .order_by(delivery_chunk.c.chunk_id)
)

#: The pieces in a batch's handed-out chunks.
CHUNK_PIECES = sa.select(delivery_chunk.c.chunk_id, delivery_chunk.c.pieces).where(
    delivery_chunk.c.batch_id == sa.bindparam("of_batch"), delivery_chunk.c.handed_out
)

#: The totals of a batch's handed-out chunks, by pool.
CHUNK_TOTALS = (
    sa.select(
        delivery_chunk.c.pool,
        sa.func.count().label("chunks"),
        sa.func.sum(delivery_chunk.c.rows).label("rows"),
        sa.func.sum(delivery_chunk.c.size).label("size"),
    )
    .where(delivery_chunk.c.batch_id == sa.bindparam("of_batch"), delivery_chunk.c.handed_out)
    .group_by(delivery_chunk.c.pool)
    .order_by(delivery_chunk.c.pool)
)

#: The pieces in those chunks of a batch that are neither handed out nor on hold.
WITHHELD_PIECES = sa.select(delivery_chunk.c.pool, delivery_chunk.c.pieces).where(
    delivery_chunk.c.batch_id == sa.bindparam("of_batch"),
    ~delivery_chunk.c.handed_out,
    delivery_chunk.c.hold_reason == "",
)

#: One chunk.
CHUNK = sa.select(delivery_chunk).where(_CHUNK)

#: Pool and weight of the handed-out chunks in a runner's uncommitted normal batch, for Airflow's scheduler.
PLACEMENTS_OF_RUNNER = (
    sa.select(delivery_chunk.c.map_index, delivery_chunk.c.pool, delivery_chunk.c.weight)
    .join(batch, batch.c.batch_id == delivery_chunk.c.batch_id)
    .where(NORMAL_UNCOMMITTED, batch.c.runner == sa.bindparam("of_runner"), delivery_chunk.c.map_index.is_not(None))
)

#: Whether a chunk is still under a claim. Its row stays locked until the transaction ends.
CHUNK_CLAIMED = sa.select(delivery_chunk.c.claim).where(_CHUNK, _CLAIM).with_for_update(read=True)

_IN_PROGRESS = delivery_chunk.c.state == "started"
_LIVE = _IN_PROGRESS & (delivery_chunk.c.claimed_until > NOW)

#: The unexpired claims of a batch.
LIVE_CLAIMS = (
    sa.select(
        delivery_chunk.c.chunk_id,
        delivery_chunk.c.claim,
        delivery_chunk.c.worker,
        delivery_chunk.c.claimed_until.label("until"),
    )
    .join(batch, batch.c.batch_id == delivery_chunk.c.batch_id)
    .where(delivery_chunk.c.batch_id == sa.bindparam("of_batch"), batch.c.state == "routed", _LIVE)
    .order_by(delivery_chunk.c.chunk_id)
)

#: A chunk that a push is working on, whatever the state of its batch.
ANY_LIVE = (
    sa.select(delivery_chunk.c.chunk_id).where(delivery_chunk.c.batch_id == sa.bindparam("of_batch"), _LIVE).limit(1)
)

#: Extends a claim while it is valid.
RENEW_CLAIM = (
    sa.update(delivery_chunk)
    .where(_CHUNK, _CLAIM, _IN_PROGRESS)
    .values(claimed_until=sa.bindparam("until", type_=UtcTime))
)

#: Ends a claim, unless it was renewed since it was read.
RELEASE_CLAIM = (
    sa.update(delivery_chunk)
    .where(_CHUNK, _CLAIM, delivery_chunk.c.claimed_until == sa.bindparam("until", type_=UtcTime))
    .values(claimed_until=None)
)

#: Claims a chunk that is neither completed nor held by a live push. This invalidates an earlier claim.
CLAIM_CHUNK = (
    sa.update(delivery_chunk)
    .where(_CHUNK, delivery_chunk.c.state != "completed", ~sa.func.coalesce(_LIVE, False))
    .values(
        claim=delivery_chunk.c.claim + 1,
        claimed_until=sa.bindparam("until", type_=UtcTime),
        state="started",
        worker=sa.bindparam("by"),
        started_at=NOW,
        ended_at=None,
        error="",
    )
)

#: Ends a chunk if the caller still holds its claim.
END_CHUNK = (
    sa.update(delivery_chunk)
    .where(_CHUNK, _CLAIM)
    .values(
        state=sa.bindparam("to"),
        succeeded=sa.bindparam("delivered"),
        failed=sa.bindparam("undelivered"),
        error=sa.bindparam("because", type_=delivery_chunk.c.error.type),
        ended_at=NOW,
    )
)

#: Adds to the CPU time of a chunk.
SPEND_CPU = sa.update(delivery_chunk).where(_CHUNK).values(cpu=delivery_chunk.c.cpu + sa.bindparam("more"))

#: Ends the claims of all chunks of a batch by raising their claim numbers; chunks in progress end with an error.
RAISE_CLAIMS = (
    sa.update(delivery_chunk)
    .where(delivery_chunk.c.batch_id == sa.bindparam("of_batch"))
    .values(
        claim=delivery_chunk.c.claim + 1,
        state=sa.case((_IN_PROGRESS, "error"), else_=delivery_chunk.c.state),
        ended_at=sa.case((_IN_PROGRESS, NOW), else_=delivery_chunk.c.ended_at),
        error=sa.case((_IN_PROGRESS, sa.bindparam("lost")), else_=delivery_chunk.c.error),
    )
)


def select_counts(runner: str | None) -> sa.Select[Any]:
    """Return the query that counts the chunks of all uncommitted batches by the chunks' state."""
    found = (
        sa.select(delivery_chunk.c.state, sa.func.count().label("chunks"))
        .join(batch, batch.c.batch_id == delivery_chunk.c.batch_id)
        .where(UNCOMMITTED)
        .group_by(delivery_chunk.c.state)
    )
    return found if runner is None else found.where(batch.c.runner == runner)


class ChunkEnd(NamedTuple):
    """The end of the work on a chunk: its state, succeeded and failed deliveries, and the tallies of its targets."""

    state: ChunkState
    succeeded: int
    failed: int
    error: str = ""
    tallies: Sequence[Tally] = ()


class Chunks(Aggregate):
    """Chunks of batches, and the claims of pushes on them."""

    def publish(
        self,
        batch_id: str,
        deadline_at: datetime,
        chunks: Sequence[Chunk],
        deferred_matches: Sequence[DeferredMatch] = (),
    ) -> bool:
        """Move a batch from buffered to routed, with its deadline, its chunks, and deferred matches.

        Returns False, and changes nothing, if another process has already moved the batch.
        """
        with self._writing() as connection:
            change = {"of_batch": batch_id, "deadline": deadline_at}
            published = connection.execute(PUBLISH_ROUTED, change).rowcount == 1
            if published:
                insert_chunks(connection, chunks)
                insert_deferred_matches(connection, deferred_matches)
            return published

    def list_for_batch(self, batch_id: str) -> list[Chunk]:
        """Return the chunks of a batch, in order of their ids."""
        return [_to_chunk(row) for row in self._rows(CHUNKS, {"of_batch": batch_id})]

    def totals(self, batch_id: str) -> list[ChunkTotal]:
        """Return the totals of a batch's handed-out chunks, by pool."""
        rows = self._rows(CHUNK_TOTALS, {"of_batch": batch_id})
        return [ChunkTotal(row.pool, row.chunks, int(row.rows), int(row.size)) for row in rows]

    def withheld_pieces(self, batch_id: str) -> list[tuple[str, Piece]]:
        """Return those pieces of a batch that are neither handed out nor on hold, each with its pool."""
        rows = self._rows(WITHHELD_PIECES, {"of_batch": batch_id})
        return [(row.pool, piece) for row in rows for piece in _to_pieces(row.pieces)]

    def targets(self, batch_id: str) -> dict[int, frozenset[tuple[str, str]]]:
        """Return the targets of each handed-out chunk of a batch, as (rule, target), by chunk id."""
        rows = self._rows(CHUNK_PIECES, {"of_batch": batch_id})
        return {row.chunk_id: frozenset((piece["rule"], piece["target"]) for piece in row.pieces) for row in rows}

    def get(self, batch_id: str, chunk_id: int) -> Chunk:
        """Return a chunk. Raises NotFoundError if there is no such chunk."""
        with self._reading() as connection:
            found = _find(connection, batch_id, chunk_id)
        if found is None:
            raise NotFoundError(f"Batch {batch_id} has no chunk {chunk_id} in this ledger.")
        return found

    def counts(self, runner: str | None = None) -> dict[str, int]:
        """Return the number of chunks in each state, over all uncommitted batches; a state without chunks is absent."""
        return {row.state: row.chunks for row in self._rows(select_counts(runner))}

    def claim(self, batch_id: str, chunk_id: int, worker: str, until: datetime | None = None) -> Chunk | None:
        """Claim a chunk until the given time and return it. This invalidates an earlier claim.

        Returns None and changes nothing if another claim has not expired, if the batch is not in the `routed` state, if
        the chunk is completed, or if it does not exist.
        """
        change = {"of_batch": batch_id, "of_chunk": chunk_id, "by": worker, "until": until, "now": self._now()}
        with self._writing() as connection:
            if not is_in_state(connection, batch_id, "routed"):
                return None
            if connection.execute(CLAIM_CHUNK, change).rowcount == 0:
                return None
            return _find(connection, batch_id, chunk_id)

    def live_claims(self, batch_id: str) -> list[LiveClaim]:
        """Return the unexpired claims of a routed batch, in order of the chunks."""
        of = {"of_batch": batch_id, "now": self._now()}
        return [LiveClaim(**row._mapping) for row in self._rows(LIVE_CLAIMS, of)]

    def renew_claim(self, batch_id: str, chunk_id: int, claim: int, until: datetime) -> bool:
        """Extend a claim until the given time. Returns False if the claim is lost or its push has ended."""
        change = {"of_batch": batch_id, "of_chunk": chunk_id, "of_claim": claim, "until": until}
        return self._change(RENEW_CLAIM, change) == 1

    def release_claim(self, batch_id: str, claim: LiveClaim) -> bool:
        """End the claim of a dead push; return False if the claim was renewed since it was found."""
        change = {"of_batch": batch_id, "of_chunk": claim.chunk_id, "of_claim": claim.claim, "until": claim.until}
        return self._change(RELEASE_CLAIM, change) == 1

    def record_late_segment(self, file: BatchFile) -> bool:
        """Record a segment of a push that lost its claim.

        Returns False if the batch is not in the `routed` state, or if the segment's key is taken.
        """
        with self._writing() as connection:
            return is_in_state(connection, file.batch_id, "routed") and record_file(connection, file)

    def record_segment(self, file: BatchFile, chunk_id: int, claim: int, cpu: int = 0) -> bool:
        """Record an outcome segment, only while its batch is routed and the chunk is under this claim.

        `cpu` is the CPU time of the segment's deliveries in microseconds; it is added to the CPU time of the chunk.
        Returns False if the claim is lost (the worker must then stop), and also if the segment's key is taken.
        """
        with self._writing() as connection:
            recorded = (
                is_in_state(connection, file.batch_id, "routed")
                and _is_claimed(connection, file.batch_id, chunk_id, claim)
                and record_file(connection, file)
            )
            if recorded and cpu:
                spent = {"of_batch": file.batch_id, "of_chunk": chunk_id, "more": cpu}
                connection.execute(SPEND_CPU, spent)
            return recorded

    def end(self, batch_id: str, chunk_id: int, claim: int, end: ChunkEnd) -> bool:
        """Record how work on a chunk ended, and the tallies of its targets; return False if the claim is lost.

        The claim is lost when another push claims the chunk, or when the settlement of the batch begins.
        """
        now = self._now()
        change = {
            "of_batch": batch_id,
            "of_chunk": chunk_id,
            "of_claim": claim,
            "to": end.state,
            "delivered": end.succeeded,
            "undelivered": end.failed,
            "because": end.error,
            "now": now,
        }
        with self._writing() as connection:
            ended = connection.execute(END_CHUNK, change).rowcount == 1
            if ended:
                record_attempts(connection, end.tallies, now)
            return ended


def insert_chunks(connection: sa.Connection, chunks: Sequence[Chunk]) -> None:
    """Add the chunks of a batch, in the caller's transaction."""
    if chunks:
        connection.execute(insert(delivery_chunk), [_chunk_row(chunk) for chunk in chunks])


def _find(connection: sa.Connection, batch_id: str, chunk_id: int) -> Chunk | None:
    row = connection.execute(CHUNK, {"of_batch": batch_id, "of_chunk": chunk_id}).one_or_none()
    return _to_chunk(row) if row is not None else None


def _is_claimed(connection: sa.Connection, batch_id: str, chunk_id: int, claim: int) -> bool:
    of = {"of_batch": batch_id, "of_chunk": chunk_id, "of_claim": claim}
    return connection.execute(CHUNK_CLAIMED, of).first() is not None


def _chunk_row(chunk: Chunk) -> dict[str, object]:
    return vars(chunk) | {"pieces": [vars(piece) for piece in chunk.pieces]}


def _to_chunk(row: sa.Row[Any]) -> Chunk:
    values = dict(row._mapping)
    values["pieces"] = _to_pieces(values["pieces"])
    return Chunk(**values)


def _to_pieces(values: Iterable[dict[str, Any]]) -> tuple[Piece, ...]:
    return tuple(
        Piece(**piece | {"lineage": tuple((batch, chunk) for batch, chunk in piece["lineage"])}) for piece in values
    )
