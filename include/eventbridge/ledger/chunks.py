"""Chunks in the ledger: publishing a batch's, claiming one, and what its claim allows until it is lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row

from eventbridge.decision.breaker import Tally
from eventbridge.errors import NotFoundError
from eventbridge.ledger.batches import in_state, record
from eventbridge.ledger.database import Database
from eventbridge.ledger.deferred_matches import insert_deferred_matches
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import chunks as statements
from eventbridge.ledger.targets import note_attempts
from eventbridge.model.batch import BatchFile
from eventbridge.model.chunk import PUSH_LOST, Chunk, ChunkState, ChunkTotal, LiveClaim, Piece
from eventbridge.model.deferred_match import DeferredMatch


def insert_chunks(connection: Connection, chunks: Sequence[Chunk]) -> None:
    """Add chunks of a batch that is being published."""
    if chunks:
        connection.execute(statements.INSERT_CHUNKS, [_chunk_row(chunk) for chunk in chunks])


class _PushUnderWayError(Exception):
    """A batch cannot be settled yet: a push is at work on a chunk of it."""


class ChunkEnd(NamedTuple):
    """How work on a chunk ended: its state, deliveries that succeeded and failed, and what is noted of its targets."""

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

        False if somebody else did.
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
        """Return what the chunks of a batch that are handed out come to, by pool."""
        with self._reading() as connection:
            rows = connection.execute(statements.CHUNK_TOTALS, {"of_batch": batch_id})
            return [ChunkTotal(row.pool, row.chunks, int(row.rows), int(row.size)) for row in rows]

    def withheld_pieces(self, batch_id: str) -> list[tuple[str, Piece]]:
        """Return what of a batch is neither handed out nor on hold, each piece with the pool it is for."""
        with self._reading() as connection:
            rows = connection.execute(statements.WITHHELD_PIECES, {"of_batch": batch_id})
            return [(row.pool, piece) for row in rows for piece in _to_pieces(row.pieces)]

    def chunk_targets(self, batch_id: str) -> dict[int, frozenset[tuple[str, str]]]:
        """Return the targets of each chunk of a batch that is handed out, as (rule, target), by its id."""
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
        """Return how many chunks of uncommitted batches are in each state; a state without chunks is absent."""
        with self._reading() as connection:
            return {row.state: row.chunks for row in connection.execute(statements.chunk_counts(runner))}

    def claim_chunk(self, batch_id: str, chunk_id: int, worker: str, until: datetime | None = None) -> Chunk | None:
        """Claim a chunk until a time and return it; an earlier claim is lost.

        Returns None, with nothing changed, if another claim has not run out, if the batch is not routed (any more), if
        the chunk is completed, or if there is no such chunk.
        """
        change = {"of_batch": batch_id, "of_chunk": chunk_id, "by": worker, "until": until, "now": self.now()}
        with self._writing() as connection:
            if not in_state(connection, batch_id, "routed"):
                return None
            if connection.execute(statements.CLAIM_CHUNK, change).rowcount == 0:
                return None
            return _find(connection, batch_id, chunk_id)

    def live_claims(self, batch_id: str) -> list[LiveClaim]:
        """Return the claims of a routed batch that have not run out, in order of the chunks."""
        of = {"of_batch": batch_id, "now": self.now()}
        with self._reading() as connection:
            return [LiveClaim(*row) for row in connection.execute(statements.LIVE_CLAIMS, of)]

    def renew_claim(self, batch_id: str, chunk_id: int, claim: int, until: datetime) -> bool:
        """Make a claim last until a time; False if it is lost, or its push has ended."""
        change = {"of_batch": batch_id, "of_chunk": chunk_id, "of_claim": claim, "until": until}
        with self._writing() as connection:
            return connection.execute(statements.RENEW_CLAIM, change).rowcount == 1

    def release_claim(self, batch_id: str, found: LiveClaim) -> bool:
        """End the claim of a push that is dead; False if it was renewed since it was found."""
        change = {"of_batch": batch_id, "of_chunk": found.chunk_id, "of_claim": found.claim, "until": found.until}
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_CLAIM, change).rowcount == 1

    def record_late_segment(self, file: BatchFile) -> bool:
        """Record a segment of a push that has lost its claim, while its batch is routed; False if it is not."""
        with self._writing() as connection:
            return in_state(connection, file.batch_id, "routed") and record(connection, file)

    def record_segment(self, file: BatchFile, chunk_id: int, claim: int, cpu: int = 0) -> bool:
        """Record an outcome segment, only while its batch is routed and the chunk stands under this claim.

        `cpu`: microseconds that it took, which the chunk adds up. False if not: the claim is lost, and the worker must
        stop. False also for a key that is taken.
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
        """Note how work on a chunk ended, and what is told of its targets, only under this claim; False if it is lost.

        The claim is lost once somebody else claims the chunk, or its batch is settled.
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
        """Move a batch from routed to settling and take its chunks from everybody.

        From then on no segment of the batch can be recorded: what there is, is all there will be. False, with nothing
        changed, if the batch was not routed, or if the claim of a push has not run out.
        """
        now = self.now()
        try:
            with self._writing() as connection:
                change = {"of_batch": batch_id, "expected": "routed", "to": "settling"}
                begun = connection.execute(batch_statements.MOVE_BATCH, change).rowcount == 1
                # after the batch's row is taken: a claim locks that row first, so that none comes in between
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
