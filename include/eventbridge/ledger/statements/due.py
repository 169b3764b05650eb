"""Statements about pending deliveries that are due.

The watcher runs them several times a second, so their cost must not grow with the number of pending rows, due or not.
Each enters an index once for each kind of row, or reads a bounded number of rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    bindparam,
    case,
    exists,
    func,
    select,
    type_coerce,
    union_all,
)

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.loose_index_scan import on, one_of_each
from eventbridge.ledger.tables import (
    SCHEDULED,
    SCHEDULED_KIND,
    SCHEDULED_TRIED,
    SCHEDULED_UNTRIED,
    TAKEN,
    WAITING,
    pending,
    target_status,
)

#: How many of the longest due rows are examined one by one, before targets are.
FIRST_ROWS = 100
#: The number of due rows among which the smallest are chosen.
SMALLEST_OF = 1_000

_NOW = bindparam("now", type_=UtcTime)
_TARGET = (pending.c.rule == bindparam("of_rule")) & (pending.c.target == bindparam("of_target"))


def _alone(status: FromClause) -> ColumnElement[bool]:
    """Return the condition that nothing is sent to a target now: disabled, paused, or its breaker is open."""
    return (
        (status.c.state == "disabled")
        | (status.c.state.in_(["degraded", "half-open"]) & (status.c.until > _NOW))
        | (status.c.paused_until > _NOW)
    )


def _left_alone(rows: FromClause) -> ColumnElement[bool]:
    same_target = (target_status.c.rule == rows.c.rule, target_status.c.target == rows.c.target)
    return exists().where(*same_target, _alone(target_status))


def _due_by_now(rows: FromClause) -> ColumnElement[bool]:
    """Return the condition in a form that searches no index: another column of the same row finds it."""
    return type_coerce(rows.c.due_at, BigInteger) + 0 <= _NOW


#: Whether nothing is sent to a target now.
LEFT_ALONE = select(target_status.c.rule).where(
    target_status.c.rule == bindparam("of_rule"),
    target_status.c.target == bindparam("of_target"),
    _alone(target_status),
)

_first = (
    select(pending.c.rule, pending.c.target, pending.c.expires_at, pending.c.held)
    .where(SCHEDULED, pending.c.due_at <= _NOW)
    .order_by(pending.c.due_at)
    .limit(FIRST_ROWS)
    .subquery()
)
_can_go = ~_left_alone(_first) | (_first.c.expires_at <= _NOW) | (_first.c.held != "")

#: How many of the first due rows there are, and how many of them can be delivered or dead-lettered.
FIRST_DUE = select(func.count().label("seen"), func.coalesce(func.sum(case((_can_go, 1), else_=0)), 0).label("can_go"))

#: One row that waits, for any reason, or that an uncommitted batch has taken.
ONE_WAITING = select(pending.c.pending_id).where(WAITING).limit(1)

#: One row that an uncommitted batch has taken.
ONE_TAKEN = select(pending.c.pending_id).where(TAKEN).limit(1)


@cache  # building it takes longer than running it
def due_targets(runner: str | None) -> Select[Any]:
    """Return the query for targets with deliveries due by `now`, the longest waiting first; see `due_pending`.

    For a target to which nothing is sent, the wait begins when its first expired row passed its age.
    """
    one = one_of_each(SCHEDULED_KIND, SCHEDULED)
    same = pending.alias("same")
    of_kind = [same.c[column.name] == column for column in SCHEDULED_KIND]
    first = select(same.c.due_at).where(*of_kind, on(same, SCHEDULED), same.c.due_at <= _NOW).order_by(same.c.due_at)
    of_target = [same.c.rule == pending.c.rule, same.c.target == pending.c.target, same.c.runner == pending.c.runner]
    past_age = (
        select(same.c.due_at)
        .where(*of_target, on(same, SCHEDULED), same.c.expires_at <= _NOW, _due_by_now(same))
        .order_by(same.c.expires_at)
    )
    due_at = case(
        (_left_alone(pending) & (pending.c.held == ""), _value(past_age)),
        else_=_value(first),
    )
    found = select(pending.c.rule, pending.c.target, due_at.label("due_at")).where(
        pending.c.pending_id == one.c.pending_id
    )
    if runner is not None:
        found = found.where(pending.c.runner == runner)
    # Materialized; otherwise SQLite evaluates it at each use.
    due = found.cte("due").prefix_with("MATERIALIZED")
    first_due_at = func.min(due.c.due_at)
    return (
        select(due.c.rule, due.c.target, type_coerce(first_due_at, UtcTime).label("first_due_at"))
        .where(due.c.due_at.is_not(None))
        .group_by(due.c.rule, due.c.target)
        .order_by(first_due_at, due.c.rule, due.c.target)
    )


def _value(query: Select[Any]) -> Any:
    return query.limit(1).correlate(pending).scalar_subquery()


def due_pending(limit: int, runner: str | None, *, smallest: bool = False, alone: bool = False) -> Select[Any]:
    """Return the query for rows of a target due by `now`, the longest waiting or the smallest first.

    For a target to which nothing is sent (`alone`), only rows that are past their age, or that keep their hold reason,
    and can only be dead-lettered.
    """
    found = select(pending).where(SCHEDULED, _TARGET, pending.c.due_at <= _NOW)
    if alone:
        past_age = select(pending.c.pending_id).where(
            SCHEDULED, _TARGET, pending.c.expires_at <= _NOW, _due_by_now(pending)
        )
        reasoned = select(pending.c.pending_id).where(SCHEDULED, _TARGET, pending.c.held > "", _due_by_now(pending))
        some = [past_age.order_by(pending.c.expires_at), reasoned.order_by(pending.c.held)]
        found = select(pending).where(pending.c.pending_id.in_(_any_of(some, limit, runner)))
    elif smallest:
        oldest = (
            select(pending.c.pending_id).where(SCHEDULED, _TARGET, pending.c.due_at <= _NOW).order_by(pending.c.due_at)
        )
        found = select(pending).where(pending.c.pending_id.in_(_any_of([oldest], max(limit, SMALLEST_OF), runner)))
    elif runner is not None:
        found = found.where(pending.c.runner == runner)
    order = (pending.c.count, pending.c.due_at) if smallest else (pending.c.due_at,)
    return found.order_by(*order, pending.c.pending_id).limit(limit)


def _any_of(queries: list[Select[Any]], limit: int, runner: str | None) -> Select[Any]:
    """Return the query for the ids of several queries, a bounded number of each."""
    limited = [(each if runner is None else each.where(pending.c.runner == runner)).limit(limit) for each in queries]
    return select(union_all(*(select(each.subquery().c.pending_id) for each in limited)).subquery().c.pending_id)


def due_of_ordered(limit: int) -> Select[Any]:
    """Return the query for due rows of an ordered target: tried ones first, then the longest waiting."""
    due = select(pending.c.pending_id).where(_TARGET, pending.c.due_at <= _NOW).order_by(pending.c.due_at)
    return (
        select(pending)
        .where(
            pending.c.pending_id.in_(_any_of([due.where(SCHEDULED_TRIED), due.where(SCHEDULED_UNTRIED)], limit, None))
        )
        .order_by(pending.c.attempts == 0, pending.c.due_at, pending.c.pending_id)
        .limit(limit)
    )


#: Targets of which uncommitted batches have taken rows, with one row of each.
TAKEN_TARGETS = select(pending.c.rule, pending.c.target).where(
    pending.c.pending_id == one_of_each([pending.c.rule, pending.c.target], TAKEN).c.pending_id
)
