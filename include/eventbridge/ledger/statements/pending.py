"""Statements about deliveries that wait for another batch."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Select,
    Update,
    bindparam,
    delete,
    func,
    select,
    tuple_,
    type_coerce,
    update,
)

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.loose_index_scan import on, one_of_each
from eventbridge.ledger.tables import (
    ON_HOLD,
    PENDING_KIND,
    PENDING_NAME,
    RETRY,
    SCHEDULED,
    TIMED,
    UNREPORTED,
    UNTAKEN,
    WAITING,
    batch,
    pending,
    target_status,
)

_TARGET = (pending.c.rule == bindparam("of_rule")) & (pending.c.target == bindparam("of_target"))
_NOW = bindparam("now", type_=UtcTime)
_PAST_AGE = pending.c.expires_at <= _NOW
_FOR_A_REASON = pending.c.held != ""

#: Adds pending deliveries, unless a row of that name exists.
ADD_PENDING = insert_or_skip(pending)

#: The names and files of the rows that a batch left pending.
PENDING_NAMES = select(*PENDING_NAME, pending.c.files).where(pending.c.batch_id == bindparam("of_batch"))

#: Which of some rows are free to be taken; locked until the transaction ends.
FREE_PENDING = (
    select(pending.c.pending_id)
    .where(pending.c.pending_id.in_(bindparam("ids", expanding=True)), SCHEDULED)
    .order_by(pending.c.pending_id)
    .with_for_update()
)

#: Takes free rows for a batch.
TAKE_PENDING = (
    update(pending)
    .where(pending.c.pending_id.in_(bindparam("ids", expanding=True)), SCHEDULED)
    .values(taken_by=bindparam("of_batch"))
)

#: The rows that a batch took.
PENDING_TAKEN_BY = select(pending).where(pending.c.taken_by == bindparam("of_batch")).order_by(pending.c.pending_id)

#: The rows that a batch left pending.
PENDING_OF = select(pending).where(pending.c.batch_id == bindparam("of_batch")).order_by(pending.c.pending_id)

#: The rows that a batch left pending and another one took.
TAKEN_OF = select(pending.c.pending_id).where(
    pending.c.batch_id == bindparam("of_batch"), pending.c.taken_by.is_not(None)
)

#: Deletes the rows that a batch left pending; the new settlement adds them again.
FORGET_PENDING = delete(pending).where(pending.c.batch_id == bindparam("of_batch"))

#: Closes the rows that a batch took.
CLOSE_PENDING = (
    update(pending)
    .where(pending.c.taken_by == bindparam("of_batch"), WAITING)
    .values(state="closed", closed_by=bindparam("of_batch"))
)

_ON_HOLD_AGAIN = {"state": "on_hold", "held": bindparam("because", type_=pending.c.held.type), "on_hold_since": _NOW}

#: Puts the scheduled, untaken rows of a target on hold, except those to be dead-lettered.
HOLD_PENDING = update(pending).where(_TARGET, SCHEDULED, ~_FOR_A_REASON).values(_ON_HOLD_AGAIN)

#: Makes the rows of a target on hold for one reason due now, to be dead-lettered only: the reason stays.
DEAD_LETTER_PENDING = (
    update(pending)
    .where(_TARGET, ON_HOLD, pending.c.held == bindparam("because", type_=pending.c.held.type))
    .values(state="scheduled", due_at=_NOW)
)

_RELEASED = {"state": "scheduled", "due_at": _NOW, "held": "", "on_hold_since": None}
_ON_HOLD_FOR = bindparam("microseconds", type_=BigInteger) - type_coerce(pending.c.on_hold_since, BigInteger)
_AGE_STOOD_STILL = {
    "on_hold_seconds": pending.c.on_hold_seconds + _ON_HOLD_FOR / 1_000_000.0,
    "expires_at": type_coerce(pending.c.expires_at, BigInteger) + _ON_HOLD_FOR,
}

_DEFERRED = (_TARGET, SCHEDULED, ~_FOR_A_REASON, pending.c.due_at.between(bindparam("first"), bindparam("last")))

#: How many deliveries of a target fall due within a period and wait for no other reason.
DEFERRED_COUNT = select(func.coalesce(func.sum(pending.c.count), 0)).where(*_DEFERRED)

#: Makes them due now.
HASTEN_PENDING = update(pending).where(*_DEFERRED).values(due_at=_NOW)

# Looked up by target: a check of each row would read all rows on hold, for any reason.
_OF_DISABLED = tuple_(pending.c.rule, pending.c.target).in_(
    select(target_status.c.rule, target_status.c.target).where(target_status.c.state == "disabled")
)

#: Makes due now the expired rows that are on hold for a disabled target: they can only be dead-lettered.
RELEASE_EXPIRED = update(pending).where(ON_HOLD, _PAST_AGE, _OF_DISABLED).values(_RELEASED)

_OLDER = (_TARGET, pending.c.published_at <= bindparam("before", type_=UtcTime))
_NOT_LET_GO = (pending.c.state == "on_hold") | pending.c.expires_at.is_(None) | (pending.c.expires_at > _NOW)

#: Makes due now, to be dead-lettered, the waiting rows of a target that were published too long ago.
RELEASE_MISSED = (
    update(pending)
    .where(TIMED, *_OLDER, _NOT_LET_GO, (pending.c.state == "on_hold") | (pending.c.held == ""))
    .values(_RELEASED | {"expires_at": _NOW})
)

#: The waiting rows of a target that were published before a time and not yet reported.
RUNNING_LATE = select(
    pending.c.count.label("deliveries"), pending.c.published_at, pending.c.held, pending.c.reason
).where(UNREPORTED, *_OLDER)

#: Marks these rows as reported.
NOTE_REPORTED = update(pending).where(UNREPORTED, *_OLDER).values(late_reported_at=_NOW)

_newest = (
    select(batch.c.batch_id)
    .where(RETRY)
    .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    .limit(bindparam("batches"))
)

#: The last of the newest retry batches that took each target.
LAST_TAKEN = (
    select(pending.c.rule, pending.c.target, func.max(pending.c.taken_by).label("batch_id"))
    .where(pending.c.taken_by.in_(_newest))
    .group_by(pending.c.rule, pending.c.target)
)


def pending_rows(state: str | None, runner: str | None, rule: str | None) -> Select[Any]:
    """Return the query for pending rows, in the order they were added."""
    found = select(pending).order_by(pending.c.pending_id)
    for column, value in ((pending.c.state, state), (pending.c.runner, runner), (pending.c.rule, rule)):
        found = found if value is None else found.where(column == value)
    return found


def pending_counts(runner: str | None) -> Select[Any]:
    """Return the query for the counts of waiting deliveries, by rule, target, state and reason."""
    kinds = (pending.c.rule, pending.c.target, pending.c.state, pending.c.reason)
    found = (
        select(
            *kinds,
            func.count().label("pending_rows"),
            func.sum(pending.c.count).label("deliveries"),
            type_coerce(func.min(pending.c.due_at), UtcTime).label("next_due_at"),
        )
        .where(WAITING)
        .group_by(*kinds)
        .order_by(*kinds)
    )
    return found if runner is None else found.where(pending.c.runner == runner)


#: How many deliveries of each rule wait.
PENDING_BY_RULE = (
    select(pending.c.rule, func.sum(pending.c.count).label("deliveries")).where(WAITING).group_by(pending.c.rule)
)


@cache  # building it takes longer than running it
def waiting_targets(runner: str | None) -> Select[Any]:
    """Return the query for waiting, untaken rows, by rule, target, state and hold reason.

    It reads one row of each kind, however many there are.
    """
    one = one_of_each(PENDING_KIND, UNTAKEN)
    same = pending.alias("same")
    newest = (
        select(same.c.on_hold_since)
        .where(*(same.c[column.name] == column for column in PENDING_KIND), on(same, UNTAKEN))
        .order_by(same.c.on_hold_since.desc())  # all of a kind have one, or none has
        .limit(1)
        .correlate(pending)
        .scalar_subquery()
    )
    kinds = (pending.c.rule, pending.c.target, pending.c.state, pending.c.held)
    found = (
        select(*kinds, type_coerce(func.max(newest), UtcTime).label("newest_on_hold_since"))
        .where(pending.c.pending_id == one.c.pending_id)
        .group_by(*kinds)
        .order_by(*kinds)
    )
    return found if runner is None else found.where(pending.c.runner == runner)


def release_pending(*, aged: bool, held: str | None, instead: str = "") -> Update:
    """Return the statement that makes the rows of a target that are on hold, all or for one reason, due now.

    Rows to be dead-lettered for that reason are released with them. With `instead` the rows are on hold for that other
    reason.
    """
    changes = (_ON_HOLD_AGAIN if instead else _RELEASED) | ({} if aged else _AGE_STOOD_STILL)
    statement = update(pending).where(_TARGET, UNTAKEN, _FOR_A_REASON).values(changes)
    return statement if held is None else statement.where(pending.c.held == held)
