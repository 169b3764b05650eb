"""Finds pending deliveries that are due, late, or past their deadline, for the retry batches and the watcher.

The watcher runs these statements several times a second, so their cost must not grow with the number of pending rows,
due or not. Each enters an index once for each kind of row, or reads a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NOW, UtcTime
from eventbridge.ledger.loose_index_scan import on_alias, one_of_each
from eventbridge.ledger.operational_events import queue_events
from eventbridge.ledger.order import SHARDS_TAKEN
from eventbridge.ledger.pending import (
    OF_TARGET,
    RELEASED,
    SCHEDULED,
    SCHEDULED_KIND,
    SCHEDULED_TRIED,
    SCHEDULED_UNTRIED,
    TIMED,
    UNREPORTED,
    pending,
    to_pending,
)
from eventbridge.ledger.targets import target_status
from eventbridge.model.pending import DueTarget, PendingDeliveries, RunningLate
from eventbridge.policy.operational_event import OperationalEvent

#: The number of longest-due rows that are checked one by one before the costlier query by target runs.
FIRST_ROWS = 100

#: The smallest rows are chosen among this many longest-due rows, or among as many as are requested if that is more.
SMALLEST_OF = 1_000


def _is_undeliverable(status: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that a target is undeliverable: it is disabled or paused, or its breaker is open."""
    return (
        (status.c.state == "disabled")
        | (status.c.state.in_(["degraded", "half-open"]) & (status.c.until > NOW))
        | (status.c.paused_until > NOW)
    )


def _target_is_undeliverable(rows: sa.FromClause) -> sa.ColumnElement[bool]:
    same_target = (target_status.c.rule == rows.c.rule, target_status.c.target == rows.c.target)
    return sa.exists().where(*same_target, _is_undeliverable(target_status))


def _is_due_unindexed(rows: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition that rows are due, in a form that uses no index, because another index finds the rows."""
    return sa.type_coerce(rows.c.due_at, sa.BigInteger) + 0 <= NOW


#: Selects a row if a target is undeliverable: it is disabled or paused, or its breaker is open.
UNDELIVERABLE = sa.select(target_status.c.rule).where(
    target_status.c.rule == sa.bindparam("of_rule"),
    target_status.c.target == sa.bindparam("of_target"),
    _is_undeliverable(target_status),
)

_first = (
    sa.select(pending.c.rule, pending.c.target, pending.c.expires_at, pending.c.hold_reason)
    .where(SCHEDULED, pending.c.due_at <= NOW)
    .order_by(pending.c.due_at)
    .limit(FIRST_ROWS)
    .subquery()
)
_can_go = ~_target_is_undeliverable(_first) | (_first.c.expires_at <= NOW) | (_first.c.hold_reason != "")

#: The number of rows that have been due longest, at most FIRST_ROWS, and how many of them can be delivered or
#: dead-lettered.
FIRST_DUE = sa.select(
    sa.func.count().label("seen"), sa.func.coalesce(sa.func.sum(sa.case((_can_go, 1), else_=0)), 0).label("can_go")
)


@cache  # building it takes longer than running it
def select_targets(runner: str | None) -> sa.Select[Any]:
    """Return the query for targets with deliveries due by `now`, those with the earliest due time first.

    An undeliverable target is selected only if it has due rows that can only be dead-lettered. If some of them have
    expired, the due time of the row that expired first counts.
    """
    one = one_of_each(SCHEDULED_KIND, SCHEDULED)
    same = pending.alias("same")
    of_kind = [same.c[column.name] == column for column in SCHEDULED_KIND]
    first = (
        sa.select(same.c.due_at)
        .where(*of_kind, on_alias(same, SCHEDULED), same.c.due_at <= NOW)
        .order_by(same.c.due_at)
    )
    of_target = [same.c.rule == pending.c.rule, same.c.target == pending.c.target, same.c.runner == pending.c.runner]
    past_age = (
        sa.select(same.c.due_at)
        .where(*of_target, on_alias(same, SCHEDULED), same.c.expires_at <= NOW, _is_due_unindexed(same))
        .order_by(same.c.expires_at)
    )
    due_at = sa.case(
        (_target_is_undeliverable(pending) & (pending.c.hold_reason == ""), _first_value(past_age)),
        else_=_first_value(first),
    )
    found = sa.select(pending.c.rule, pending.c.target, due_at.label("due_at")).where(
        pending.c.pending_id == one.c.pending_id
    )
    if runner is not None:
        found = found.where(pending.c.runner == runner)
    # Materialized, because SQLite would otherwise evaluate it at each use.
    due = found.cte("due").prefix_with("MATERIALIZED")
    first_due_at = sa.func.min(due.c.due_at)
    return (
        sa.select(due.c.rule, due.c.target, sa.type_coerce(first_due_at, UtcTime).label("first_due_at"))
        .where(due.c.due_at.is_not(None))
        .group_by(due.c.rule, due.c.target)
        .order_by(first_due_at, due.c.rule, due.c.target)
    )


def _first_value(query: sa.Select[Any]) -> Any:
    return query.limit(1).correlate(pending).scalar_subquery()


def select_rows(
    limit: int, runner: str | None, *, smallest: bool = False, undeliverable: bool = False
) -> sa.Select[Any]:
    """Return the query for rows of a target due by `now`, those with the earliest due time or the smallest first.

    If the target is `undeliverable`, the query selects only rows that can only be dead-lettered: those that have
    expired or have a hold reason.
    """
    found = sa.select(pending).where(SCHEDULED, OF_TARGET, pending.c.due_at <= NOW)
    if undeliverable:
        past_age = sa.select(pending.c.pending_id).where(
            SCHEDULED, OF_TARGET, pending.c.expires_at <= NOW, _is_due_unindexed(pending)
        )
        reasoned = sa.select(pending.c.pending_id).where(
            SCHEDULED, OF_TARGET, pending.c.hold_reason > "", _is_due_unindexed(pending)
        )
        some = [past_age.order_by(pending.c.expires_at), reasoned.order_by(pending.c.hold_reason)]
        found = sa.select(pending).where(pending.c.pending_id.in_(_select_ids(some, limit, runner)))
    elif smallest:
        oldest = (
            sa.select(pending.c.pending_id)
            .where(SCHEDULED, OF_TARGET, pending.c.due_at <= NOW)
            .order_by(pending.c.due_at)
        )
        found = sa.select(pending).where(
            pending.c.pending_id.in_(_select_ids([oldest], max(limit, SMALLEST_OF), runner))
        )
    elif runner is not None:
        found = found.where(pending.c.runner == runner)
    order = (pending.c.count, pending.c.due_at) if smallest else (pending.c.due_at,)
    return found.order_by(*order, pending.c.pending_id).limit(limit)


def _select_ids(queries: list[sa.Select[Any]], limit: int, runner: str | None) -> sa.Select[Any]:
    """Return the query for the ids of the rows that several queries select, at most `limit` of each."""
    limited = [(each if runner is None else each.where(pending.c.runner == runner)).limit(limit) for each in queries]
    return sa.select(
        sa.union_all(*(sa.select(each.subquery().c.pending_id) for each in limited)).subquery().c.pending_id
    )


def select_rows_in_order(limit: int) -> sa.Select[Any]:
    """Return the query for due rows of an ordered target: tried ones first, then the longest waiting."""
    due = sa.select(pending.c.pending_id).where(OF_TARGET, pending.c.due_at <= NOW).order_by(pending.c.due_at)
    return (
        sa.select(pending)
        .where(
            pending.c.pending_id.in_(
                _select_ids([due.where(SCHEDULED_TRIED), due.where(SCHEDULED_UNTRIED)], limit, None)
            )
        )
        .order_by(pending.c.attempts == 0, pending.c.due_at, pending.c.pending_id)
        .limit(limit)
    )


_OLDER = (OF_TARGET, pending.c.published_at <= sa.bindparam("before", type_=UtcTime))
_NOT_RELEASED = (pending.c.state == "on_hold") | pending.c.expires_at.is_(None) | (pending.c.expires_at > NOW)

#: Makes waiting rows of a target due now, to be dead-lettered, because their events were published too long ago.
RELEASE_MISSED = (
    sa.update(pending)
    .where(TIMED, *_OLDER, _NOT_RELEASED, (pending.c.state == "on_hold") | (pending.c.hold_reason == ""))
    .values(RELEASED | {"expires_at": NOW})
)

#: The waiting rows of a target whose events were published up to the given time, and that are not reported as late yet.
RUNNING_LATE = sa.select(
    pending.c.count.label("deliveries"), pending.c.published_at, pending.c.hold_reason, pending.c.reason
).where(UNREPORTED, *_OLDER)

#: Marks the rows of RUNNING_LATE as reported.
NOTE_REPORTED = sa.update(pending).where(UNREPORTED, *_OLDER).values(late_reported_at=NOW)


class Due(Aggregate):
    """Deliveries that are due, late, or past their deadline."""

    def has_any(self, now: datetime) -> bool:
        """Return whether `targets` would return any target; the cost does not depend on the number of pending
        deliveries."""
        with self._reading() as connection:
            first = connection.execute(FIRST_DUE, {"now": now}).one()
            if first.can_go or first.seen < FIRST_ROWS:
                return bool(first.can_go)
            return connection.execute(select_targets(None), {"now": now}).first() is not None

    def targets(self, now: datetime, runner: str | None = None) -> list[DueTarget]:
        """Return the targets with deliveries due at `now`, the longest waiting first.

        A target that is disabled or paused, or whose breaker is open, is included only if it has due deliveries that
        can only be dead-lettered. The cost depends on the number of waiting targets, not on the number of deliveries.
        """
        rows = self._rows(select_targets(runner), {"now": now})
        return [DueTarget(row.rule, row.target, row.first_due_at) for row in rows]

    def rows(
        self,
        now: datetime,
        rule: str,
        target: str,
        limit_rows: int,
        runner: str | None = None,
        *,
        smallest: bool = False,
    ) -> list[PendingDeliveries]:
        """Return those pending rows of a target that are due at `now` and not taken, the longest waiting or `smallest`
        first.

        Returns at most `limit_rows` rows, each of which may hold many deliveries. For a target that is disabled or
        paused, or whose breaker is open, it returns only rows that can only be dead-lettered. `smallest` chooses among
        the 1,000 rows (or `limit_rows`, if higher) that have waited longest. The cost depends on `limit_rows`, not on
        how much is pending or due.
        """
        of = {"now": now, "of_rule": rule, "of_target": target}
        with self._reading() as connection:
            undeliverable = connection.execute(UNDELIVERABLE, of).first() is not None
            query = select_rows(limit_rows, runner, smallest=smallest, undeliverable=undeliverable)
            return [to_pending(row) for row in connection.execute(query, of)]

    def rows_in_order(self, now: datetime, rule: str, target: str, limit_rows: int) -> list[PendingDeliveries]:
        """Return at most `limit_rows` due rows of an ordered target, from shards of which no open batch has taken rows.

        Rows that were tried come first, then those that have waited longest.
        """
        of = {"of_rule": rule, "of_target": target}
        with self._reading() as connection:
            taken = set(connection.execute(SHARDS_TAKEN, of).scalars())
            rows = connection.execute(select_rows_in_order(limit_rows), of | {"now": now})
            return [row for row in map(to_pending, rows) if row.order_shard not in taken]

    def release_missed(self, rule: str, target: str, before: datetime) -> int:
        """Make waiting rows of a target due, to be dead-lettered, if published up to `before`; return how many."""
        of = {"of_rule": rule, "of_target": target, "before": before, "now": self._now()}
        return self._change(RELEASE_MISSED, of)

    def report_late(
        self, rule: str, target: str, before: datetime, event_of: Callable[[RunningLate], OperationalEvent]
    ) -> int:
        """Queue one operational event about the waiting deliveries of events that were published up to `before`.

        Deliveries that were already reported are left out. Returns the number of deliveries that the event reports.
        """
        of = {"of_rule": rule, "of_target": target, "before": before, "now": self._now()}
        with self._reading() as connection:
            if connection.execute(RUNNING_LATE.limit(1), of).first() is None:
                return 0
        with self._writing() as connection:
            rows = connection.execute(RUNNING_LATE, of).all()
            if not rows:
                return 0
            connection.execute(NOTE_REPORTED, of)
            waits_for = tuple(sorted({row.hold_reason or row.reason for row in rows}))
            late = RunningLate(sum(row.deliveries for row in rows), min(row.published_at for row in rows), waits_for)
            queue_events(connection, [event_of(late)])
            return late.count
