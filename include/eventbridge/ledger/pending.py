"""Pending deliveries in the ledger: adding them, taking due ones for a batch, holding and releasing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row

from eventbridge.errors import ReconciliationError
from eventbridge.ledger.batches import prove_settled_by, record
from eventbridge.ledger.chunks import insert_chunks
from eventbridge.ledger.columns import microseconds, to_spans
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import due
from eventbridge.ledger.statements import offsets as offset_statements
from eventbridge.ledger.statements import order as order_statements
from eventbridge.ledger.statements import pending as statements
from eventbridge.ledger.tables import PENDING_NAME
from eventbridge.model.batch import Batch, BatchFile, BatchState
from eventbridge.model.chunk import Chunk
from eventbridge.model.pending import DueTarget, PendingCount, PendingDeliveries, PendingState, WaitingTarget
from eventbridge.policy.ordering import is_marked

#: The most rows that one UPDATE names; a database limits the parameters of a statement (SQLite: 32,766).
_IDS_AT_ONCE = 1_000

_NAME_COLUMNS = tuple(column.name for column in PENDING_NAME)


class Pending(Database):
    """The part of the ledger about deliveries that wait for another batch."""

    def add_pending(self, rows: Sequence[PendingDeliveries], settlement: str | None = None) -> int:
        """Add pending deliveries and return how many rows are new; a row that exists stays as it is.

        `settlement`: the key of the first settlement of the batch, from which the rows are derived. Raises
        SettledAgainError, and adds nothing, if the batch has another one now.

        A row with `held` is added on hold, or due if `held` marks an operator's decision about it. Raises
        ReconciliationError, and adds nothing, if a row has the name of another one (see PendingDeliveries) but other
        files: one would be lost.
        """
        if not rows:
            return 0
        values = [_pending_row(row, self.now()) for row in rows]
        with self._writing() as connection:
            for batch_id in {row.batch_id for row in rows} if settlement is not None else ():
                connection.execute(batch_statements.BATCH_STATE, {"of_batch": batch_id})
                prove_settled_by(connection, batch_id, str(settlement))
            pending = connection.execute(statements.ADD_PENDING, values).rowcount
            if pending != len(values):
                _prove_same(connection, values)
            return pending

    def anything_due(self, now: datetime) -> bool:
        """Return whether `due_targets` finds any; the cost does not depend on how many deliveries are pending."""
        with self._reading() as connection:
            first = connection.execute(due.FIRST_DUE, {"now": now}).one()
            if first.can_go or first.seen < due.FIRST_ROWS:
                return bool(first.can_go)
            return connection.execute(due.due_targets(None), {"now": now}).first() is not None

    def anything_taken(self) -> bool:
        """Return whether an uncommitted batch has taken pending deliveries."""
        with self._reading() as connection:
            return connection.execute(due.ONE_TAKEN).first() is not None

    def anything_pending(self) -> bool:
        """Return whether any delivery is pending, due or not."""
        with self._reading() as connection:
            return connection.execute(due.ONE_WAITING).first() is not None

    def due_targets(self, now: datetime, runner: str | None = None) -> list[DueTarget]:
        """Return the targets with deliveries due at `now`, the longest waiting first.

        A target that is disabled or paused, or whose breaker is open, is left out, except for deliveries that can only
        be dead-lettered. The cost depends on how many targets wait, not on how many deliveries.
        """
        with self._reading() as connection:
            rows = connection.execute(due.due_targets(runner), {"now": now})
            return [DueTarget(row.rule, row.target, row.first_due_at) for row in rows]

    def due_pending(
        self,
        now: datetime,
        rule: str,
        target: str,
        limit_rows: int,
        runner: str | None = None,
        *,
        smallest: bool = False,
    ) -> list[PendingDeliveries]:
        """Return pending rows of a target that are due at `now` and not taken, the longest waiting or `smallest` first.

        Returns at most `limit_rows` rows, each of which may hold many deliveries. For a target that is disabled or
        paused, or whose breaker is open, it returns only rows that can only be dead-lettered. `smallest` chooses
        among the 1,000 that wait longest. The cost depends on `limit_rows`, not on how much is pending or due.
        """
        of = {"now": now, "of_rule": rule, "of_target": target}
        with self._reading() as connection:
            alone = connection.execute(due.LEFT_ALONE, of).first() is not None
            query = due.due_pending(limit_rows, runner, smallest=smallest, alone=alone)
            return [to_pending(row) for row in connection.execute(query, of)]

    def plan_taken(self, batch: Batch, chunks: Sequence[Chunk], pending_ids: Sequence[int]) -> bool:
        """Add a batch with its chunks and assign it the pending rows that it takes: all, or none and return False.

        Returns False if any of the rows is not due or was taken by another batch, or belongs to an order shard of which
        another batch has rows: only one batch of a shard is open at a time. The batch and its chunks are added as
        they are given (a batch that begins at push: routed, with a deadline).
        """
        ids = sorted(set(pending_ids))
        with self._writing() as connection:
            # Planners run one after another: two that take different rows of one shard would not see each other's rows.
            connection.execute(offset_statements.TAKE_TURN)
            free = [connection.execute(statements.FREE_PENDING, {"ids": some}).all() for some in _slices(ids)]
            if sum(map(len, free)) != len(ids):
                return False
            if any(connection.execute(order_statements.SHARD_TAKEN, {"ids": some}).first() for some in _slices(ids)):
                return False
            connection.execute(batch_statements.INSERT_BATCH, vars(batch))
            insert_chunks(connection, chunks)
            for some in _slices(ids):
                connection.execute(statements.TAKE_PENDING, {"of_batch": batch.batch_id, "ids": some})
            return True

    def taken_targets(self) -> set[tuple[str, str]]:
        """Return the (rule, target) of the pending rows that uncommitted batches have taken."""
        with self._reading() as connection:
            return {(row.rule, row.target) for row in connection.execute(due.TAKEN_TARGETS)}

    def last_taken(self, batches: int) -> dict[tuple[str, str], str]:
        """Return the last of the newest `batches` retry batches that took each (rule, target); others are absent."""
        with self._reading() as connection:
            rows = connection.execute(statements.LAST_TAKEN, {"batches": batches})
            return {(row.rule, row.target): row.batch_id for row in rows}

    def pending_taken_by(self, batch_id: str) -> list[PendingDeliveries]:
        """Return the pending rows that a batch took, including those it has closed."""
        with self._reading() as connection:
            return [to_pending(row) for row in connection.execute(statements.PENDING_TAKEN_BY, {"of_batch": batch_id})]

    def pending_of(self, batch_id: str) -> list[PendingDeliveries]:
        """Return the rows that a batch left pending, in any state."""
        with self._reading() as connection:
            return [to_pending(row) for row in connection.execute(statements.PENDING_OF, {"of_batch": batch_id})]

    def set_aside(
        self, batch_id: str, state: BatchState, files: Sequence[BatchFile], old: str, settlement: BatchFile | None
    ) -> bool:
        """Delete the records of files of a batch in this state, and replace the `old` first settlement with a new one.

        The old settlement's supplements, dead letters and pending rows are deleted with it. Returns False, and changes
        nothing, if the batch is in another state or one of its pending rows was taken. Raises SettledAgainError if the
        first settlement is not the old one. Without a settlement only the records of files are deleted.
        """
        of = {"of_batch": batch_id}
        with self._writing() as connection:
            # written unchanged: no other transaction reads or writes the row until this one ends
            if connection.execute(batch_statements.MOVE_BATCH, of | {"expected": state, "to": state}).rowcount == 0:
                return False
            prove_settled_by(connection, batch_id, old)
            if settlement is not None:
                if connection.execute(statements.TAKEN_OF, of).first() is not None:
                    return False
                connection.execute(statements.FORGET_PENDING, of)
                connection.execute(batch_statements.FORGET_SETTLEMENT, of)
            for file in files:
                connection.execute(batch_statements.FORGET_FILE, of | {"of_kind": file.kind, "of_key": file.key})
            return settlement is None or record(connection, settlement)

    def pending(
        self, state: PendingState | None = None, runner: str | None = None, rule: str | None = None
    ) -> list[PendingDeliveries]:
        """Return pending rows in the order they were added, including closed ones unless `state` says otherwise."""
        with self._reading() as connection:
            return [to_pending(row) for row in connection.execute(statements.pending_rows(state, runner, rule))]

    def pending_counts(self, runner: str | None = None) -> list[PendingCount]:
        """Return counts of waiting deliveries (scheduled or on hold, taken or not): by rule, target, state, reason."""
        with self._reading() as connection:
            return [
                PendingCount(
                    row.rule, row.target, row.state, row.reason, row.pending_rows, int(row.deliveries), row.next_due_at
                )
                for row in connection.execute(statements.pending_counts(runner))
            ]

    def pending_by_rule(self) -> dict[str, int]:
        """Return the number of waiting deliveries of each rule, taken or not; rules without any are absent."""
        with self._reading() as connection:
            return {row.rule: int(row.deliveries) for row in connection.execute(statements.PENDING_BY_RULE)}

    def hold_pending(self, rule: str, target: str, reason: str) -> int:
        """Put the scheduled, untaken rows of a target on hold, except those to be dead-lettered; return how many."""
        change = {"of_rule": rule, "of_target": target, "because": reason, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.HOLD_PENDING, change).rowcount

    def waiting_targets(self, runner: str | None = None) -> list[WaitingTarget]:
        """Return the targets with waiting, untaken deliveries, with the state and the reason of a hold."""
        with self._reading() as connection:
            return [WaitingTarget(**row._mapping) for row in connection.execute(statements.waiting_targets(runner))]

    def dead_letter_pending(self, rule: str, target: str, reason: str) -> int:
        """Make the rows of a target that are on hold for one reason due now, to be dead-lettered; return how many.

        The rows keep `held` and `on_hold_since`, which mark them: they are not put on hold again, and they are due even
        if their target is disabled. `release_pending` makes them due like any other row.
        """
        change = {"of_rule": rule, "of_target": target, "because": reason, "now": self.now()}
        with self._writing() as connection:
            return connection.execute(statements.DEAD_LETTER_PENDING, change).rowcount

    def release_pending(
        self, rule: str, target: str, *, aged: bool = False, held: str | None = None, instead: str = ""
    ) -> int:
        """Make the rows of a target that are on hold due now, or only those with the reason `held`; return how many.

        The time they were on hold is added to `on_hold_seconds` and `expires_at`, unless it counts towards their age
        (`aged`: after a 410). With `instead` they stay on hold, for that reason.
        """
        now = self.now()
        change = {"of_rule": rule, "of_target": target, "now": now}
        if not aged:
            change["microseconds"] = microseconds(now)
        if instead:
            change["because"] = instead
        statement = statements.release_pending(aged=aged, held=held, instead=instead)
        with self._writing() as connection:
            return connection.execute(statement, change).rowcount

    def hasten_pending(self, rule: str, target: str, first: datetime, last: datetime) -> int:
        """Make deliveries of a target that fall due from `first` to `last` (both included) due now; return how many."""
        of = {"of_rule": rule, "of_target": target, "first": first, "last": last, "now": self.now()}
        with self._writing() as connection:
            count = int(connection.execute(statements.DEFERRED_COUNT, of).scalar_one())
            if count:
                connection.execute(statements.HASTEN_PENDING, of)
            return count

    def release_expired(self, now: datetime) -> int:
        """Make due the expired rows that are on hold for disabled targets, so that they can end; return how many."""
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_EXPIRED, {"now": now}).rowcount


def _slices(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE))


def _pending_row(row: PendingDeliveries, now: datetime) -> dict[str, Any]:
    values = dict(vars(row))
    del values["pending_id"]
    values |= {"due_bucket": row.due_at, "hold_bucket": row.held, "pending_at": row.pending_at or now}
    if row.held:
        values |= {
            "state": "scheduled" if is_marked(row.held) else "on_hold",
            "on_hold_since": row.on_hold_since or now,
        }
    return values


def to_pending(row: Row[Any]) -> PendingDeliveries:
    """Return the record of a row of table `pending`."""
    values = dict(row._mapping)
    del values["due_bucket"], values["hold_bucket"]
    values["files"] = tuple((file, rows) for file, rows in values["files"])
    values["lineage"] = tuple((batch, chunk) for batch, chunk in values["lineage"])
    values["order_spans"] = to_spans(values["order_spans"])
    return PendingDeliveries(**values)


def _prove_same(connection: Connection, values: Sequence[dict[str, Any]]) -> None:
    """Raise ReconciliationError unless every row is in the ledger with the files that it was to be added with."""
    there: dict[tuple[Any, ...], set[tuple[str, str]]] = {}
    for batch_id in sorted({row["batch_id"] for row in values}):
        for *name, files in connection.execute(statements.PENDING_NAMES, {"of_batch": batch_id}):
            there[tuple(name)] = {(file, rows) for file, rows in files}
    for row in values:
        if there.get(tuple(row[column] for column in _NAME_COLUMNS)) != set(row["files"]):
            said = ", ".join(f"{column} {row[column]}" for column in _NAME_COLUMNS)
            raise ReconciliationError(f"Other deliveries are pending under the same name ({said}); nothing was added.")
