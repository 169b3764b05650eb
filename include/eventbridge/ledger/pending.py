"""Stores pending deliveries in the ledger: adds them, takes them for a batch, puts them on hold and releases them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from eventbridge.errors import ReconciliationError
from eventbridge.ledger.batches import BATCH_STATE, INSERT_BATCH, RETRY, batch
from eventbridge.ledger.chunks import insert_chunks
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import (
    NOW,
    NUMBERED,
    JsonText,
    Message,
    RowId,
    UtcTime,
    insert_or_skip,
    metadata,
    microseconds,
    one_of,
    partial,
    to_spans,
    word,
)
from eventbridge.ledger.files import prove_settled_by
from eventbridge.ledger.loose_index_scan import on_alias, one_of_each
from eventbridge.ledger.revision import TAKE_TURN
from eventbridge.ledger.targets import target_status
from eventbridge.model.batch import Batch
from eventbridge.model.chunk import Chunk
from eventbridge.model.pending import PendingCount, PendingDeliveries, PendingState, WaitingTarget
from eventbridge.policy.ordering import is_marked

pending = sa.Table(
    "pending",
    metadata,
    sa.Column("pending_id", RowId, primary_key=True),
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id"), nullable=False),
    sa.Column("settlement", sa.Integer, nullable=False),
    sa.Column("chunk_id", sa.Integer, nullable=False),
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("lane", sa.Text, nullable=False),
    # The initial values of due_at and hold_reason; they identify the row and never change.
    sa.Column("due_bucket", UtcTime, nullable=False),
    sa.Column("hold_bucket", sa.Text, nullable=False),
    sa.Column("due_at", UtcTime, nullable=False),
    sa.Column("hold_reason", Message, nullable=False),
    sa.Column("on_hold_since", UtcTime),
    sa.Column("on_hold_seconds", sa.Float, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("order_shard", sa.Integer),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("pending_at", UtcTime, nullable=False),
    sa.Column("taken_by", sa.Text, sa.ForeignKey("batch.batch_id")),
    sa.Column("closed_by", sa.Text, sa.ForeignKey("batch.batch_id")),
    sa.Column("lineage", JsonText, nullable=False),
    sa.Column("files", JsonText, nullable=False),
    sa.Column("order_spans", JsonText, nullable=False, server_default="[]"),
    # Set for targets with `deliver_within`: when the youngest event was published, and when the delay was reported.
    sa.Column("published_at", UtcTime),
    sa.Column("late_reported_at", UtcTime),
    one_of("state", PendingState),
    **NUMBERED,
)

#: The columns that identify a pending row: adding a row with the same values again adds nothing.
_NAME = "batch_id settlement chunk_id rule target reason attempts lane due_bucket hold_bucket"

PENDING_NAME = tuple(pending.c[name] for name in _NAME.split())
pending.append_constraint(sa.UniqueConstraint(*PENDING_NAME))
WAITING = pending.c.state != word("closed")
SCHEDULED = (pending.c.state == word("scheduled")) & pending.c.taken_by.is_(None)

ON_HOLD = (pending.c.state == word("on_hold")) & pending.c.taken_by.is_(None)
TAKEN = WAITING & pending.c.taken_by.is_not(None)
UNTAKEN = WAITING & pending.c.taken_by.is_(None)

UNTAKEN_IN_ORDER = UNTAKEN & pending.c.order_shard.is_not(None)
partial("ix_pending_scheduled", SCHEDULED, pending.c.due_at, pending.c.rule, pending.c.target)
partial("ix_pending_scheduled_of_target", SCHEDULED, pending.c.rule, pending.c.target, pending.c.due_at)

#: The kinds of due rows: the watcher lists the kinds and reads the first row of each (`ledger.due`).
SCHEDULED_KIND = (pending.c.rule, pending.c.target, pending.c.hold_reason, pending.c.runner)
partial("ix_pending_scheduled_kind", SCHEDULED, *SCHEDULED_KIND, pending.c.due_at)
partial("ix_pending_scheduled_expiry", SCHEDULED, pending.c.rule, pending.c.target, pending.c.expires_at)

SCHEDULED_TRIED = SCHEDULED & pending.c.order_shard.is_not(None) & (pending.c.attempts > sa.literal_column("0"))

SCHEDULED_UNTRIED = SCHEDULED & pending.c.order_shard.is_not(None) & (pending.c.attempts == sa.literal_column("0"))
partial("ix_pending_scheduled_tried", SCHEDULED_TRIED, pending.c.rule, pending.c.target, pending.c.due_at)
partial("ix_pending_scheduled_untried", SCHEDULED_UNTRIED, pending.c.rule, pending.c.target, pending.c.due_at)
partial("ix_pending_on_hold", ON_HOLD, pending.c.rule, pending.c.target, pending.c.expires_at)
partial("ix_pending_waiting", WAITING, pending.c.rule, pending.c.target)
TIMED = UNTAKEN & pending.c.published_at.is_not(None)
UNREPORTED = TIMED & pending.c.late_reported_at.is_(None)
partial("ix_pending_timed", TIMED, pending.c.rule, pending.c.target, pending.c.published_at)
partial("ix_pending_unreported", UNREPORTED, pending.c.rule, pending.c.target, pending.c.published_at)

#: The kinds of waiting rows: a retry run lists the kinds and reads one row of each.
PENDING_KIND = (pending.c.rule, pending.c.target, pending.c.state, pending.c.hold_reason, pending.c.runner)
partial("ix_pending_kind", UNTAKEN, *PENDING_KIND, pending.c.on_hold_since)

_IN_SHARD = (pending.c.rule, pending.c.target, pending.c.order_shard)
partial("ix_pending_shard", UNTAKEN_IN_ORDER, *_IN_SHARD, pending.c.state, pending.c.hold_reason)
# The index contains all columns of its condition; otherwise SQLite, which has no statistics of these rows, would read
# the index of all waiting rows.
partial("ix_pending_taken", TAKEN, *_IN_SHARD, pending.c.state, pending.c.taken_by)
# Without the condition, SQLite would use this index for `taken_by IS NULL` and read all rows that were never taken.
partial("ix_pending_taken_by", pending.c.taken_by.is_not(None), pending.c.taken_by)
# Without this index, the foreign key makes the database read all pending rows for every batch that is removed.
partial("ix_pending_closed_by", pending.c.closed_by.is_not(None), pending.c.closed_by)
OF_TARGET = (pending.c.rule == sa.bindparam("of_rule")) & (pending.c.target == sa.bindparam("of_target"))

_EXPIRED = pending.c.expires_at <= NOW
_HAS_REASON = pending.c.hold_reason != ""

#: The identifying columns and the files of the rows that a batch left pending.
PENDING_NAMES = sa.select(*PENDING_NAME, pending.c.files).where(pending.c.batch_id == sa.bindparam("of_batch"))

#: Those of the given rows that are scheduled and not taken; locked until the transaction ends.
FREE_PENDING = (
    sa.select(pending.c.pending_id)
    .where(pending.c.pending_id.in_(sa.bindparam("ids", expanding=True)), SCHEDULED)
    .order_by(pending.c.pending_id)
    .with_for_update()
)

#: Takes free rows for a batch.
TAKE_PENDING = (
    sa.update(pending)
    .where(pending.c.pending_id.in_(sa.bindparam("ids", expanding=True)), SCHEDULED)
    .values(taken_by=sa.bindparam("of_batch"))
)

other = pending.alias("other")

IN_THAT_SHARD = (
    (other.c.rule == pending.c.rule)
    & (other.c.target == pending.c.target)
    & (other.c.order_shard == pending.c.order_shard)
)

TAKEN_OF_THAT_SHARD = sa.exists().where(IN_THAT_SHARD, on_alias(other, TAKEN))

#: Those of the given rows whose shard has rows that an uncommitted batch has taken.
SHARD_TAKEN = sa.select(pending.c.pending_id).where(
    pending.c.pending_id.in_(sa.bindparam("ids", expanding=True)),
    pending.c.order_shard.is_not(None),
    TAKEN_OF_THAT_SHARD,
)

#: The rows that a batch took.
PENDING_TAKEN_BY = (
    sa.select(pending).where(pending.c.taken_by == sa.bindparam("of_batch")).order_by(pending.c.pending_id)
)

#: The rows that a batch left pending.
PENDING_OF = sa.select(pending).where(pending.c.batch_id == sa.bindparam("of_batch")).order_by(pending.c.pending_id)

#: The rows that a batch left pending and another batch took.
TAKEN_OF = sa.select(pending.c.pending_id).where(
    pending.c.batch_id == sa.bindparam("of_batch"), pending.c.taken_by.is_not(None)
)

#: Deletes the rows that a batch left pending; the new settlement adds them again.
FORGET_PENDING = sa.delete(pending).where(pending.c.batch_id == sa.bindparam("of_batch"))

#: Closes the rows that a batch took.
CLOSE_PENDING = (
    sa.update(pending)
    .where(pending.c.taken_by == sa.bindparam("of_batch"), WAITING)
    .values(state="closed", closed_by=sa.bindparam("of_batch"))
)

_PUT_ON_HOLD = {
    "state": "on_hold",
    "hold_reason": sa.bindparam("because", type_=pending.c.hold_reason.type),
    "on_hold_since": NOW,
}

#: Puts the scheduled, untaken rows of a target on hold, except those to be dead-lettered.
HOLD_PENDING = sa.update(pending).where(OF_TARGET, SCHEDULED, ~_HAS_REASON).values(_PUT_ON_HOLD)

#: Makes due now those rows of a target that are on hold for one reason, only to be dead-lettered; they keep the reason.
DEAD_LETTER_PENDING = (
    sa.update(pending)
    .where(OF_TARGET, ON_HOLD, pending.c.hold_reason == sa.bindparam("because", type_=pending.c.hold_reason.type))
    .values(state="scheduled", due_at=NOW)
)

RELEASED = {"state": "scheduled", "due_at": NOW, "hold_reason": "", "on_hold_since": None}
_ON_HOLD_FOR = sa.bindparam("microseconds", type_=sa.BigInteger) - sa.type_coerce(
    pending.c.on_hold_since, sa.BigInteger
)

AGE_STOOD_STILL = {
    "on_hold_seconds": pending.c.on_hold_seconds + _ON_HOLD_FOR / 1_000_000.0,
    "expires_at": sa.type_coerce(pending.c.expires_at, sa.BigInteger) + _ON_HOLD_FOR,
}
_DEFERRED = (
    OF_TARGET,
    SCHEDULED,
    ~_HAS_REASON,
    pending.c.due_at.between(sa.bindparam("first"), sa.bindparam("last")),
)

#: The number of a target's scheduled deliveries that become due within a period and have no hold reason.
DEFERRED_COUNT = sa.select(sa.func.coalesce(sa.func.sum(pending.c.count), 0)).where(*_DEFERRED)

#: Makes the rows that DEFERRED_COUNT counts due now.
HASTEN_PENDING = sa.update(pending).where(*_DEFERRED).values(due_at=NOW)

# The rows are looked up by target, because a check of each row would read all rows on hold, for any reason.
_OF_DISABLED = sa.tuple_(pending.c.rule, pending.c.target).in_(
    sa.select(target_status.c.rule, target_status.c.target).where(target_status.c.state == "disabled")
)

#: Makes due now those rows on hold that have expired and whose target is disabled; they can only be dead-lettered.
RELEASE_EXPIRED = sa.update(pending).where(ON_HOLD, _EXPIRED, _OF_DISABLED).values(RELEASED)

_newest = (
    sa.select(batch.c.batch_id)
    .where(RETRY)
    .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    .limit(sa.bindparam("batches"))
)

#: For each target, the last of the newest retry batches that took its rows.
LAST_TAKEN = (
    sa.select(pending.c.rule, pending.c.target, sa.func.max(pending.c.taken_by).label("batch_id"))
    .where(pending.c.taken_by.in_(_newest))
    .group_by(pending.c.rule, pending.c.target)
)


def select_rows(state: str | None, runner: str | None, rule: str | None) -> sa.Select[Any]:
    """Return the query for pending rows, in the order they were added."""
    found = sa.select(pending).order_by(pending.c.pending_id)
    for column, value in ((pending.c.state, state), (pending.c.runner, runner), (pending.c.rule, rule)):
        found = found if value is None else found.where(column == value)
    return found


def select_counts(runner: str | None) -> sa.Select[Any]:
    """Return the query for the counts of waiting deliveries, by rule, target, state and reason."""
    kinds = (pending.c.rule, pending.c.target, pending.c.state, pending.c.reason)
    found = (
        sa.select(
            *kinds,
            sa.func.count().label("pending_rows"),
            sa.func.sum(pending.c.count).label("deliveries"),
            sa.type_coerce(sa.func.min(pending.c.due_at), UtcTime).label("next_due_at"),
        )
        .where(WAITING)
        .group_by(*kinds)
        .order_by(*kinds)
    )
    return found if runner is None else found.where(pending.c.runner == runner)


#: The number of pending deliveries of each rule.
PENDING_BY_RULE = (
    sa.select(pending.c.rule, sa.func.sum(pending.c.count).label("deliveries")).where(WAITING).group_by(pending.c.rule)
)


@cache  # building it takes longer than running it
def select_waiting_targets(runner: str | None) -> sa.Select[Any]:
    """Return the query for waiting, untaken rows, by rule, target, state and hold reason.

    It reads one row of each kind, regardless of their number.
    """
    one = one_of_each(PENDING_KIND, UNTAKEN)
    same = pending.alias("same")
    newest = (
        sa.select(same.c.on_hold_since)
        .where(*(same.c[column.name] == column for column in PENDING_KIND), on_alias(same, UNTAKEN))
        .order_by(same.c.on_hold_since.desc())  # either all rows of a kind have this time, or none has
        .limit(1)
        .correlate(pending)
        .scalar_subquery()
    )
    kinds = (pending.c.rule, pending.c.target, pending.c.state, pending.c.hold_reason)
    found = (
        sa.select(*kinds, sa.type_coerce(sa.func.max(newest), UtcTime).label("newest_on_hold_since"))
        .where(pending.c.pending_id == one.c.pending_id)
        .group_by(*kinds)
        .order_by(*kinds)
    )
    return found if runner is None else found.where(pending.c.runner == runner)


def update_released(*, aged: bool, hold_reason: str | None, instead: str = "") -> sa.Update:
    """Return the statement that makes due now those rows of a target that are on hold for a reason, or for any.

    It also applies to rows that are scheduled to be dead-lettered and therefore have a hold reason. If `instead` is
    set, the rows do not become due but are put on hold for that reason.
    """
    changes = (_PUT_ON_HOLD if instead else RELEASED) | ({} if aged else AGE_STOOD_STILL)
    statement = sa.update(pending).where(OF_TARGET, UNTAKEN, _HAS_REASON).values(changes)
    return statement if hold_reason is None else statement.where(pending.c.hold_reason == hold_reason)


#: One row that is not closed: scheduled, on hold, or taken by an uncommitted batch.
ONE_WAITING = sa.select(pending.c.pending_id).where(WAITING).limit(1)

#: One row that an uncommitted batch has taken.
ONE_TAKEN = sa.select(pending.c.pending_id).where(TAKEN).limit(1)

#: The targets whose rows uncommitted batches have taken; the query reads one row of each.
TAKEN_TARGETS = sa.select(pending.c.rule, pending.c.target).where(
    pending.c.pending_id == one_of_each([pending.c.rule, pending.c.target], TAKEN).c.pending_id
)

_THEIRS = (pending.c.rule == target_status.c.rule, pending.c.target == target_status.c.target)

#: The targets whose last attempts all failed and that have scheduled rows, taken or not; the query reads one of these
#: rows of each target.
FAILING_TARGETS = sa.select(target_status.c.rule, target_status.c.target).where(
    target_status.c.failing_since.is_not(None),
    sa.exists().where(*_THEIRS, SCHEDULED).correlate(target_status)
    | sa.exists().where(*_THEIRS, TAKEN, pending.c.state == word("scheduled")).correlate(target_status),
)

#: The maximum number of rows in one UPDATE; a database limits the parameters of a statement (SQLite: 32,766).
_IDS_AT_ONCE = 1_000

_NAME_COLUMNS = tuple(column.name for column in PENDING_NAME)


class Pending(Aggregate):
    """Pending deliveries, which a later batch sends."""

    def add(self, rows: Sequence[PendingDeliveries], settlement: str | None = None) -> int:
        """Add pending deliveries and return how many rows are new; a row that exists stays as it is.

        `settlement` is the key of the batch's first settlement, from which the rows are derived. Raises
        SettledAgainError, and adds nothing, if the batch now has a different settlement.

        A row with `hold_reason` is added on hold, or as scheduled if `hold_reason` marks an operator's decision about
        it. Raises ReconciliationError, and adds nothing, if a stored row has the same name as a new one (see
        PendingDeliveries) but different files, because one of the two would be lost.
        """
        if not rows:
            return 0
        values = [_pending_row(row, self._now()) for row in rows]
        with self._writing() as connection:
            for batch_id in {row.batch_id for row in rows} if settlement is not None else ():
                connection.execute(BATCH_STATE, {"of_batch": batch_id})
                prove_settled_by(connection, batch_id, str(settlement))
            added = connection.execute(insert_or_skip(pending), values).rowcount
            if added != len(values):
                _prove_same(connection, values)
            return added

    def has_taken(self) -> bool:
        """Return whether an uncommitted batch has taken pending deliveries."""
        return self._first(ONE_TAKEN) is not None

    def has_waiting(self) -> bool:
        """Return whether any delivery is pending, due or not."""
        return self._first(ONE_WAITING) is not None

    def take(self, batch: Batch, chunks: Sequence[Chunk], pending_ids: Sequence[int]) -> bool:
        """Add a batch with its chunks, and assign it the pending rows that it takes; return whether it was added.

        Returns False, and changes nothing, if any of the rows is not scheduled or was taken by another batch, or
        belongs to an order shard of which an uncommitted batch has taken rows, because only one batch at a time sends a
        shard. The batch and its chunks are stored as given; a batch that begins with push is `routed` and has a
        deadline.
        """
        ids = sorted(set(pending_ids))
        with self._writing() as connection:
            # Planners take turns, because two at the same time could take different rows of one shard.
            connection.execute(TAKE_TURN)
            free = [connection.execute(FREE_PENDING, {"ids": some}).all() for some in _id_groups(ids)]
            if sum(map(len, free)) != len(ids):
                return False
            if any(connection.execute(SHARD_TAKEN, {"ids": some}).first() for some in _id_groups(ids)):
                return False
            connection.execute(INSERT_BATCH, vars(batch))
            insert_chunks(connection, chunks)
            for some in _id_groups(ids):
                connection.execute(TAKE_PENDING, {"of_batch": batch.batch_id, "ids": some})
            return True

    def list_taken_targets(self) -> set[tuple[str, str]]:
        """Return the (rule, target) of the pending rows that uncommitted batches have taken."""
        return {(row.rule, row.target) for row in self._rows(TAKEN_TARGETS)}

    def last_taken(self, batches: int) -> dict[tuple[str, str], str]:
        """Return, by (rule, target), which of the newest `batches` retry batches last took rows of the target.

        A target is absent if none of these batches took rows of it.
        """
        return {(row.rule, row.target): row.batch_id for row in self._rows(LAST_TAKEN, {"batches": batches})}

    def list_taken_by(self, batch_id: str) -> list[PendingDeliveries]:
        """Return the pending rows that a batch took, including those it has closed."""
        return [to_pending(row) for row in self._rows(PENDING_TAKEN_BY, {"of_batch": batch_id})]

    def list_for_batch(self, batch_id: str) -> list[PendingDeliveries]:
        """Return the rows that a batch left pending, in any state."""
        return [to_pending(row) for row in self._rows(PENDING_OF, {"of_batch": batch_id})]

    def find(
        self, state: PendingState | None = None, runner: str | None = None, rule: str | None = None
    ) -> list[PendingDeliveries]:
        """Return pending rows in the order they were added, including closed ones unless `state` is set."""
        return [to_pending(row) for row in self._rows(select_rows(state, runner, rule))]

    def counts(self, runner: str | None = None) -> list[PendingCount]:
        """Return counts of waiting deliveries (scheduled or on hold, taken or not): by rule, target, state, reason."""
        return [
            PendingCount(
                row.rule, row.target, row.state, row.reason, row.pending_rows, int(row.deliveries), row.next_due_at
            )
            for row in self._rows(select_counts(runner))
        ]

    def counts_by_rule(self) -> dict[str, int]:
        """Return the number of waiting deliveries of each rule, taken or not; rules without any are absent."""
        return {row.rule: int(row.deliveries) for row in self._rows(PENDING_BY_RULE)}

    def hold(self, rule: str, target: str, reason: str) -> int:
        """Put the scheduled, untaken rows of a target on hold, except those to be dead-lettered; return how many."""
        change = {"of_rule": rule, "of_target": target, "because": reason, "now": self._now()}
        return self._change(HOLD_PENDING, change)

    def waiting_targets(self, runner: str | None = None) -> list[WaitingTarget]:
        """Return the targets with waiting, untaken deliveries, once for each of their states and hold reasons."""
        return [WaitingTarget(**row._mapping) for row in self._rows(select_waiting_targets(runner))]

    def failing_targets(self) -> set[tuple[str, str]]:
        """Return the targets (rule, target) whose last attempts all failed and whose deliveries wait for a retry."""
        return {(row.rule, row.target) for row in self._rows(FAILING_TARGETS)}

    def dead_letter(self, rule: str, target: str, reason: str) -> int:
        """Make due now, to be dead-lettered, those rows of a target that are on hold for one reason; return how many.

        The rows keep `hold_reason` and `on_hold_since`, which mark them, so that they are not put on hold again and are
        due even if their target is disabled. `release` turns them into ordinary rows that are due.
        """
        change = {"of_rule": rule, "of_target": target, "because": reason, "now": self._now()}
        return self._change(DEAD_LETTER_PENDING, change)

    def release(
        self, rule: str, target: str, *, aged: bool = False, hold_reason: str | None = None, instead: str = ""
    ) -> int:
        """Make due now all rows of a target that are on hold, or only those on hold for `hold_reason`; return how many.

        Rows that are scheduled to be dead-lettered are included. The time on hold is added to `on_hold_seconds` and
        `expires_at`, unless it counts towards the age of the rows (`aged`, after a 410). If `instead` is set, the rows
        do not become due, but are on hold for that reason.
        """
        now = self._now()
        change = {"of_rule": rule, "of_target": target, "now": now}
        if not aged:
            change["microseconds"] = microseconds(now)
        if instead:
            change["because"] = instead
        statement = update_released(aged=aged, hold_reason=hold_reason, instead=instead)
        return self._change(statement, change)

    def hasten(self, rule: str, target: str, first: datetime, last: datetime) -> int:
        """Make due now those deliveries of a target that would fall due from `first` to `last` (both included); return
        how many."""
        of = {"of_rule": rule, "of_target": target, "first": first, "last": last, "now": self._now()}
        with self._writing() as connection:
            count = int(connection.execute(DEFERRED_COUNT, of).scalar_one())
            if count:
                connection.execute(HASTEN_PENDING, of)
            return count

    def release_expired(self, now: datetime) -> int:
        """Make due, to be dead-lettered, those rows on hold that have expired and whose target is disabled; return how
        many."""
        return self._change(RELEASE_EXPIRED, {"now": now})


def _id_groups(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE))


def _pending_row(row: PendingDeliveries, now: datetime) -> dict[str, Any]:
    values = dict(vars(row))
    del values["pending_id"]
    values |= {"due_bucket": row.due_at, "hold_bucket": row.hold_reason, "pending_at": row.pending_at or now}
    if row.hold_reason:
        values |= {
            "state": "scheduled" if is_marked(row.hold_reason) else "on_hold",
            "on_hold_since": row.on_hold_since or now,
        }
    return values


def to_pending(row: sa.Row[Any]) -> PendingDeliveries:
    """Return the record of a row of table `pending`."""
    values = dict(row._mapping)
    del values["due_bucket"], values["hold_bucket"]
    values["files"] = tuple((file, rows) for file, rows in values["files"])
    values["lineage"] = tuple((batch, chunk) for batch, chunk in values["lineage"])
    values["order_spans"] = to_spans(values["order_spans"])
    return PendingDeliveries(**values)


def _prove_same(connection: sa.Connection, values: Sequence[dict[str, Any]]) -> None:
    """Raise ReconciliationError unless the ledger has every row with the given files."""
    stored: dict[tuple[Any, ...], set[tuple[str, str]]] = {}
    for batch_id in sorted({row["batch_id"] for row in values}):
        for *name, files in connection.execute(PENDING_NAMES, {"of_batch": batch_id}):
            stored[tuple(name)] = {(file, rows) for file, rows in files}
    for row in values:
        if stored.get(tuple(row[column] for column in _NAME_COLUMNS)) != set(row["files"]):
            shown = ", ".join(f"{column} {row[column]}" for column in _NAME_COLUMNS)
            raise ReconciliationError(f"Other deliveries are pending under the same name ({shown}); nothing was added.")
