"""Chunks in the ledger: publishing those of a batch, claiming one, and the writes that a claim allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row

from eventbridge.errors import NotFoundError
from eventbridge.ledger.batches import in_state, record
from eventbridge.ledger.database import Database
from eventbridge.ledger.deferred_matches import insert_deferred_matches
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import chunks as statements
from eventbridge.ledger.targets import note_attempts
from eventbridge.model.batch import BatchFile
from eventbridge.model.chunk import PUSH_LOST, Chunk, ChunkState, ChunkTotal, LiveClaim, Piece
from eventbridge.model.pending import DeferredMatch
from eventbridge.policy.breaker import Tally


def insert_chunks(connection: Connection, chunks: Sequence[Chunk]) -> None:
    """Add chunks of a batch that is being published."""
    if chunks:
        connection.execute(statements.INSERT_CHUNKS, [_chunk_row(chunk) for chunk in chunks])


class _PushUnderWayError(Exception):
    """A batch cannot be settled yet because a push works on one of its chunks."""


class ChunkEnd(NamedTuple):
    """How work on a chunk ended: its state, succeeded and failed deliveries, and the tallies of its targets."""

    state: ChunkState
    succeeded: int
    failed: int
    error: str = ""
    tallies: Sequence[Tally] = ()


class Chunks(Database):
    """The part of the ledger about chunks."""

    def publish_chunks(
        self,
        batch_id: str,
        deadline_at: datetime,
        chunks: Sequence[Chunk],
        deferred_matches: Sequence[DeferredMatch] = (),
    ) -> bool:
        """Move a batch from buffered to routed, with its deadline, its chunks, and deferred matches.

        Returns False if another process did.
        """
        with self._writing() as connection:
            change = {"of_batch": batch_id, "deadline": deadline_at}
            published = connection.execute(batch_statements.PUBLISH_ROUTED, change).rowcount == 1
            if published:
                insert_chunks(connection, chunks)
                insert_deferred_matches(connection, deferred_matches)
            return published

    def chunks(self, batch_id: str) -> list[Chunk]:
        """Return the chunks of a batch, in order of their ids."""
        with self._reading() as connection:
            return [_to_chunk(row) for row in connection.execute(statements.CHUNKS, {"of_batch": batch_id})]

    def chunk_totals(self, batch_id: str) -> list[ChunkTotal]:
        """Return the totals of the chunks of a batch that are handed out, by pool."""
        with self._reading() as connection:
            rows = connection.execute(statements.CHUNK_TOTALS, {"of_batch": batch_id})
            return [ChunkTotal(row.pool, row.chunks, int(row.rows), int(row.size)) for row in rows]

    def withheld_pieces(self, batch_id: str) -> list[tuple[str, Piece]]:
        """Return the pieces of a batch that are neither handed out nor on hold, each with its pool."""
        with self._reading() as connection:
            rows = connection.execute(statements.WITHHELD_PIECES, {"of_batch": batch_id})
            return [(row.pool, piece) for row in rows for piece in _to_pieces(row.pieces)]

    def chunk_targets(self, batch_id: str) -> dict[int, frozenset[tuple[str, str]]]:
        """Return the targets, as (rule, target), of each chunk of a batch that is handed out, by chunk id."""
        with self._reading() as connection:
            rows = connection.execute(statements.CHUNK_PIECES, {"of_batch": batch_id})
            return {row.chunk_id: frozenset((piece["rule"], piece["target"]) for piece in row.pieces) for row in rows}

    def chunk(self, batch_id: str, chunk_id: int) -> Chunk:
        """Return a chunk; raises NotFoundError."""
        with self._reading() as connection:
            found = _find(connection, batch_id, chunk_id)
        if found is None:
            raise NotFoundError(f"Batch {batch_id} has no chunk {chunk_id} in this ledger.")
        return found

    def chunk_counts(self, runner: str | None = None) -> dict[str, int]:
        """Return the number of chunks of uncommitted batches in each state; a state without chunks is absent."""
        with self._reading() as connection:
            return {row.state: row.chunks for row in connection.execute(statements.chunk_counts(runner))}

    def claim_chunk(self, batch_id: str, chunk_id: int, worker: str, until: datetime | None = None) -> Chunk | None:
        """Claim a chunk until a time and return it; this invalidates an earlier claim.

        Returns None and changes nothing if another claim has not expired, if the batch is not in state routed, if the
        chunk is completed, or if it does not exist.
        """
        change = {"of_batch": batch_id, "of_chunk": chunk_id, "by": worker, "until": until, "now": self.now()}
        with self._writing() as connection:
            if not in_state(connection, batch_id, "routed"):
                return None
            if connection.execute(statements.CLAIM_CHUNK, change).rowcount == 0:
                return None
            return _find(connection, batch_id, chunk_id)

    def live_claims(self, batch_id: str) -> list[LiveClaim]:
        """Return the claims of a routed batch that have not expired, in order of the chunks."""
        of = {"of_batch": batch_id, "now": self.now()}
        with self._reading() as connection:
            return [LiveClaim(*row) for row in connection.execute(statements.LIVE_CLAIMS, of)]

    def renew_claim(self, batch_id: str, chunk_id: int, claim: int, until: datetime) -> bool:
        """Extend a claim until a time; return False if it is lost or its push has ended."""
        change = {"of_batch": batch_id, "of_chunk": chunk_id, "of_claim": claim, "until": until}
        with self._writing() as connection:
            return connection.execute(statements.RENEW_CLAIM, change).rowcount == 1

    def release_claim(self, batch_id: str, found: LiveClaim) -> bool:
        """End the claim of a dead push; return False if the claim was renewed since it was found."""
        change = {"of_batch": batch_id, "of_chunk": found.chunk_id, "of_claim": found.claim, "until": found.until}
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_CLAIM, change).rowcount == 1

    def record_late_segment(self, file: BatchFile) -> bool:
        """Record a segment of a push that lost its claim; return False if the batch is not in state routed."""
        with self._writing() as connection:
            return in_state(connection, file.batch_id, "routed") and record(connection, file)

    def record_segment(self, file: BatchFile, chunk_id: int, claim: int, cpu: int = 0) -> bool:
        """Record an outcome segment, only while its batch is routed and the chunk is under this claim.

        `cpu`: its CPU time in microseconds, added to that of the chunk. Returns False if the claim is lost, and the
        worker must stop then. Returns False also for a key that is taken.
        """
        with self._writing() as connection:
            recorded = (
                in_state(connection, file.batch_id, "routed")
                and _claimed(connection, file.batch_id, chunk_id, claim)
                and record(connection, file)
            )
            if recorded and cpu:
                spent = {"of_batch": file.batch_id, "of_chunk": chunk_id, "more": cpu}
                connection.execute(statements.SPEND_CPU, spent)
            return recorded

    def end_chunk(self, batch_id: str, chunk_id: int, claim: int, end: ChunkEnd) -> bool:
        """Record how work on a chunk ended, and the tallies of its targets; return False if the claim is lost.

        The claim is lost when another push claims the chunk or its batch is settled.
        """
        now = self.now()
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
            ended = connection.execute(statements.END_CHUNK, change).rowcount == 1
            if ended:
                note_attempts(connection, end.tallies, now)
            return ended

    def begin_settlement(self, batch_id: str) -> bool:
        """Move a batch from routed to settling and end all claims of its chunks.

        From then on no segment of the batch can be recorded, so its segments are final. Returns False and changes
        nothing if the batch is not in state routed, or if the claim of a push has not expired.
        """
        now = self.now()
        try:
            with self._writing() as connection:
                change = {"of_batch": batch_id, "expected": "routed", "to": "settling"}
                begun = connection.execute(batch_statements.MOVE_BATCH, change).rowcount == 1
                # after the batch's row is locked: a claim locks that row first, so none can intervene
                if connection.execute(statements.ANY_LIVE, {"of_batch": batch_id, "now": now}).first() is not None:
                    raise _PushUnderWayError
                if begun:
                    raised = {"of_batch": batch_id, "now": now, "lost": PUSH_LOST}
                    connection.execute(statements.RAISE_CLAIMS, raised)
                return begun
        except _PushUnderWayError:
            return False


def _find(connection: Connection, batch_id: str, chunk_id: int) -> Chunk | None:
    row = connection.execute(statements.CHUNK, {"of_batch": batch_id, "of_chunk": chunk_id}).one_or_none()
    return _to_chunk(row) if row is not None else None


def _claimed(connection: Connection, batch_id: str, chunk_id: int, claim: int) -> bool:
    of = {"of_batch": batch_id, "of_chunk": chunk_id, "of_claim": claim}
    return connection.execute(statements.CHUNK_CLAIMED, of).first() is not None


def _chunk_row(chunk: Chunk) -> dict[str, object]:
    return vars(chunk) | {"pieces": [vars(piece) for piece in chunk.pieces]}


def _to_chunk(row: Row[Any]) -> Chunk:
    values = dict(row._mapping)
    values["pieces"] = _to_pieces(values["pieces"])
    return Chunk(**values)


def _to_pieces(values: Iterable[dict[str, Any]]) -> tuple[Piece, ...]:
    return tuple(
        Piece(**piece | {"lineage": tuple((batch, chunk) for batch, chunk in piece["lineage"])}) for piece in values
    )
