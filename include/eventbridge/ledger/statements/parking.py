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
    DUE,
    HELD,
    PARKED_KIND,
    PARKED_NAME,
    RETRY,
    TIMED,
    UNTAKEN,
    UNTOLD,
    WAITING,
    batch,
    parked,
    target_status,
)

_TARGET = (parked.c.rule == bindparam("of_rule")) & (parked.c.target == bindparam("of_target"))
_NOW = bindparam("now", type_=UtcTime)
_PAST_AGE = parked.c.expires_at <= _NOW
_FOR_A_REASON = parked.c.held != ""

#: Parks deliveries, unless a row of that name is there.
PARK = insert_or_skip(parked)

#: The names and files of what a batch parked.
PARKED_NAMES = select(*PARKED_NAME, parked.c.files).where(parked.c.batch_id == bindparam("of_batch"))

#: Which of some rows are free to be taken; they stay so until the transaction ends.
FREE_PARKED = (
    select(parked.c.parked_id)
    .where(parked.c.parked_id.in_(bindparam("ids", expanding=True)), DUE)
    .order_by(parked.c.parked_id)
    .with_for_update()
)

#: Takes free rows for a batch.
TAKE_PARKED = (
    update(parked)
    .where(parked.c.parked_id.in_(bindparam("ids", expanding=True)), DUE)
    .values(taken_by=bindparam("of_batch"))
)

#: What a batch took up.
PARKED_TAKEN_BY = select(parked).where(parked.c.taken_by == bindparam("of_batch")).order_by(parked.c.parked_id)

#: What a batch parked.
PARKED_OF = select(parked).where(parked.c.batch_id == bindparam("of_batch")).order_by(parked.c.parked_id)

#: What a batch parked and another one took.
TAKEN_OF = select(parked.c.parked_id).where(parked.c.batch_id == bindparam("of_batch"), parked.c.taken_by.is_not(None))

#: Forgets what a batch parked: it is parked again.
FORGET_PARKED = delete(parked).where(parked.c.batch_id == bindparam("of_batch"))

#: Closes what a batch took up.
CLOSE_PARKED = (
    update(parked)
    .where(parked.c.taken_by == bindparam("of_batch"), WAITING)
    .values(state="closed", closed_by=bindparam("of_batch"))
)

_HELD_ANEW = {"state": "held", "held": bindparam("because", type_=parked.c.held.type), "held_since": _NOW}

#: Holds what of a target is due or will be, and not taken, unless it is to be given up.
HOLD_PARKED = update(parked).where(_TARGET, DUE, ~_FOR_A_REASON).values(_HELD_ANEW)

#: Makes what is held of a target for one reason due now, as what can only be given up: the reason stays.
GIVE_UP_PARKED = (
    update(parked)
    .where(_TARGET, HELD, parked.c.held == bindparam("because", type_=parked.c.held.type))
    .values(state="due", due_at=_NOW)
)

_RELEASED = {"state": "due", "due_at": _NOW, "held": "", "held_since": None}
_HELD_FOR = bindparam("microseconds", type_=BigInteger) - type_coerce(parked.c.held_since, BigInteger)
_AGE_STOOD_STILL = {
    "held_seconds": parked.c.held_seconds + _HELD_FOR / 1_000_000.0,
    "expires_at": type_coerce(parked.c.expires_at, BigInteger) + _HELD_FOR,
}

_PUT_OFF = (_TARGET, DUE, ~_FOR_A_REASON, parked.c.due_at.between(bindparam("first"), bindparam("last")))

#: How many deliveries of a target fall due within a time, for no other reason.
PUT_OFF_COUNT = select(func.coalesce(func.sum(parked.c.count), 0)).where(*_PUT_OFF)

#: Makes them due now.
HASTEN_PARKED = update(parked).where(*_PUT_OFF).values(due_at=_NOW)

# Looked up by target: asked of each row, it would have all read that is held, for whatever reason.
_OF_DISABLED = tuple_(parked.c.rule, parked.c.target).in_(
    select(target_status.c.rule, target_status.c.target).where(target_status.c.state == "disabled")
)

#: Makes due now what is held for a disabled target and past its age: it can only become a dead letter.
RELEASE_EXPIRED = update(parked).where(HELD, _PAST_AGE, _OF_DISABLED).values(_RELEASED)

_OLDER = (_TARGET, parked.c.published_at <= bindparam("before", type_=UtcTime))
_NOT_LET_GO = (parked.c.state == "held") | parked.c.expires_at.is_(None) | (parked.c.expires_at > _NOW)

#: Makes due now, to be given up, what waits of a target and was published too long ago, whatever it waits for.
RELEASE_MISSED = (
    update(parked)
    .where(TIMED, *_OLDER, _NOT_LET_GO, (parked.c.state == "held") | (parked.c.held == ""))
    .values(_RELEASED | {"expires_at": _NOW})
)

#: What waits of a target, was published so long ago, and was not told of.
RUNNING_LATE = select(parked.c.count.label("deliveries"), parked.c.published_at, parked.c.held, parked.c.reason).where(
    UNTOLD, *_OLDER
)

#: Notes of these rows that they were told of.
NOTE_TOLD = update(parked).where(UNTOLD, *_OLDER).values(told_late_at=_NOW)

_newest = (
    select(batch.c.batch_id)
    .where(RETRY)
    .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    .limit(bindparam("batches"))
)

#: By which of the newest retry batches each target was taken up last.
LAST_TAKEN = (
    select(parked.c.rule, parked.c.target, func.max(parked.c.taken_by).label("batch_id"))
    .where(parked.c.taken_by.in_(_newest))
    .group_by(parked.c.rule, parked.c.target)
)


def parked_rows(state: str | None, runner: str | None, rule: str | None) -> Select[Any]:
    """Return the query for parked rows, in the order they were parked."""
    found = select(parked).order_by(parked.c.parked_id)
    for column, value in ((parked.c.state, state), (parked.c.runner, runner), (parked.c.rule, rule)):
        found = found if value is None else found.where(column == value)
    return found


def parked_counts(runner: str | None) -> Select[Any]:
    """Return the query for how much waits, by rule, target, state and reason."""
    kinds = (parked.c.rule, parked.c.target, parked.c.state, parked.c.reason)
    found = (
        select(
            *kinds,
            func.count().label("parked_rows"),
            func.sum(parked.c.count).label("deliveries"),
            type_coerce(func.min(parked.c.due_at), UtcTime).label("next_due_at"),
        )
        .where(WAITING)
        .group_by(*kinds)
        .order_by(*kinds)
    )
    return found if runner is None else found.where(parked.c.runner == runner)


#: How many deliveries of each rule wait.
PARKED_BY_RULE = (
    select(parked.c.rule, func.sum(parked.c.count).label("deliveries")).where(WAITING).group_by(parked.c.rule)
)


@cache  # to put it together takes longer than to run it
def waiting_targets(runner: str | None) -> Select[Any]:
    """Return the query for what waits and is not taken, by rule, target, state and why it is held.

    It reads one row of each kind, however many there are.
    """
    one = one_of_each(PARKED_KIND, UNTAKEN)
    same = parked.alias("same")
    newest = (
        select(same.c.held_since)
        .where(*(same.c[column.name] == column for column in PARKED_KIND), on(same, UNTAKEN))
        .order_by(same.c.held_since.desc())  # all of a kind have one, or none has
        .limit(1)
        .correlate(parked)
        .scalar_subquery()
    )
    kinds = (parked.c.rule, parked.c.target, parked.c.state, parked.c.held)
    found = (
        select(*kinds, type_coerce(func.max(newest), UtcTime).label("newest_held_since"))
        .where(parked.c.parked_id == one.c.parked_id)
        .group_by(*kinds)
        .order_by(*kinds)
    )
    return found if runner is None else found.where(parked.c.runner == runner)


def release_parked(*, aged: bool, held: str | None, instead: str = "") -> Update:
    """Return the statement that makes what is held of a target, all of it or for one reason, due now.

    What was to be given up for that reason is released with it. With `instead` it is held for that other reason.
    """
    changes = (_HELD_ANEW if instead else _RELEASED) | ({} if aged else _AGE_STOOD_STILL)
    statement = update(parked).where(_TARGET, UNTAKEN, _FOR_A_REASON).values(changes)
    return statement if held is None else statement.where(parked.c.held == held)
