"""Stores the statuses, recent attempts and rate limits of targets in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import NOW, Message, UtcTime, insert_or_skip, metadata, one_of
from eventbridge.ledger.operational_events import queue_events
from eventbridge.model.rule_state import TargetState, TargetStatus
from eventbridge.policy.breaker import Count, Tally, disabled, first_second, next_status, recovered
from eventbridge.policy.operational_event import target_event
from eventbridge.policy.rate_limit import Bucket, Lease, lease

target_status = sa.Table(
    "target_status",
    metadata,
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", Message, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("until", UtcTime),
    sa.Column("good", sa.Integer, nullable=False, server_default="0"),
    sa.Column("slow", sa.Boolean, nullable=False, server_default="0"),
    sa.Column("failing_since", UtcTime),
    sa.Column("paused_until", UtcTime),
    sa.PrimaryKeyConstraint("rule", "target"),
    one_of("state", TargetState),
)

#: The number of attempts of all pushes at each target within the breaker's window, by second since 1970; `failed` of
#: them failed, and `slow` of them had a slow response or none.
target_window = sa.Table(
    "target_window",
    metadata,
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("second", sa.BigInteger, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("slow", sa.BigInteger, nullable=False, server_default="0"),
    sa.PrimaryKeyConstraint("rule", "target", "second"),
)

#: The remaining tokens of a target that has a rate, or whose rate rises after a recovery.
target_tokens = sa.Table(
    "target_tokens",
    metadata,
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("count", sa.Float, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.PrimaryKeyConstraint("rule", "target"),
)

_STATUS = (target_status.c.rule == sa.bindparam("of_rule")) & (target_status.c.target == sa.bindparam("of_target"))
_WINDOW = (target_window.c.rule == sa.bindparam("of_rule")) & (target_window.c.target == sa.bindparam("of_target"))

#: The statuses of all targets that have one; `record_attempts` describes when a target gets its first status.
TARGET_STATUSES = sa.select(target_status).order_by(target_status.c.rule, target_status.c.target)

#: The status of a target, locked until the transaction ends.
TARGET_STATUS = sa.select(target_status).where(_STATUS).with_for_update()

#: Changes the status of a target.
CHANGE_TARGET_STATUS = (
    sa.update(target_status)
    .where(_STATUS)
    .values(
        state=sa.bindparam("to"),
        reason=sa.bindparam("because", type_=target_status.c.reason.type),
        since=sa.bindparam("from_then", type_=UtcTime),
        until=sa.bindparam("till", type_=UtcTime),
        good=sa.bindparam("good_probes"),
        slow=sa.bindparam("is_slow"),
        failing_since=sa.bindparam("failing_from", type_=UtcTime),
        paused_until=sa.bindparam("paused_till", type_=UtcTime),
    )
)

#: Gives one push the right to probe until the given time: the first push that requests it once the breaker allows
#: probes.
CLAIM_PROBE = (
    sa.update(target_status)
    .where(
        _STATUS,
        target_status.c.state.in_(["degraded", "half-open"]),
        target_status.c.until.is_(None) | (target_status.c.until <= NOW),
    )
    .values(until=sa.bindparam("till", type_=UtcTime))
)

#: The content of a target's bucket, locked until the transaction ends.
TOKENS = (
    sa.select(target_tokens.c.count, target_tokens.c.at)
    .where(target_tokens.c.rule == sa.bindparam("of_rule"), target_tokens.c.target == sa.bindparam("of_target"))
    .with_for_update()
)

#: Changes the content of a target's bucket.
CHANGE_TOKENS = (
    sa.update(target_tokens)
    .where(target_tokens.c.rule == sa.bindparam("of_rule"), target_tokens.c.target == sa.bindparam("of_target"))
    .values(count=sa.bindparam("left", type_=sa.Float), at=NOW)
)

#: Adds to the attempts of a second.
ADD_ATTEMPTS = (
    sa.update(target_window)
    .where(_WINDOW, target_window.c.second == sa.bindparam("of_second"))
    .values(
        attempts=target_window.c.attempts + sa.bindparam("more_attempts", type_=sa.BigInteger),
        failed=target_window.c.failed + sa.bindparam("more_failed", type_=sa.BigInteger),
        slow=target_window.c.slow + sa.bindparam("more_slow", type_=sa.BigInteger),
    )
)

#: The number of attempts at a target since a second, how many of them failed, and how many were slow.
WINDOW = sa.select(
    sa.func.sum(target_window.c.attempts), sa.func.sum(target_window.c.failed), sa.func.sum(target_window.c.slow)
).where(_WINDOW, target_window.c.second >= sa.bindparam("from_second"))

#: Deletes the counts of attempts at a target before a second.
FORGET_ATTEMPTS = sa.delete(target_window).where(_WINDOW, target_window.c.second < sa.bindparam("before_second"))


class Targets(Aggregate):
    """Statuses, recent attempts and rate limits of targets."""

    def statuses(self) -> dict[tuple[str, str], TargetStatus]:
        """Return the statuses of targets by (rule, target); a target that is absent has always been `ok`."""
        return {(row.rule, row.target): TargetStatus(**row._mapping) for row in self._rows(TARGET_STATUSES)}

    def set_status(self, rule: str, target: str, state: TargetState, reason: str) -> None:
        """Set the state of a target and its reason, and end its pause.

        `since` changes only with the state. Pending deliveries stay as they are, because the caller holds or releases
        them.
        """
        now = self._now()
        with self._writing() as connection:
            old = _locked_status(connection, rule, target, now)
            if state == "ok" and old.state != "ok":
                new = recovered(old, reason, now)
            elif state == "disabled":
                new = disabled(old, reason, now)
            else:
                since = old.since if state == old.state else now
                new = replace(old, state=state, reason=reason, since=since, until=None, good=0, slow=False)
            _change(connection, old, replace(new, paused_until=None))

    def record_attempts(self, tallies: Sequence[Tally]) -> None:
        """Add the tallies of pushes and change the statuses of their targets as the breaker decides."""
        with self._writing() as connection:
            record_attempts(connection, tallies, self._now())

    def claim_probe(self, rule: str, target: str, until: datetime) -> bool:
        """Claim the probe of a target whose breaker admits probes, until the given time; return False if another has
        it."""
        change = {"of_rule": rule, "of_target": target, "now": self._now(), "till": until}
        return self._change(CLAIM_PROBE, change) == 1

    def lease_tokens(self, rule: str, target: str, rate: float, wanted: int) -> Lease:
        """Lease up to `wanted` tokens of a target whose bucket fills at `rate` a second, for use within a second."""
        now = self._now()
        of = {"of_rule": rule, "of_target": target}
        with self._writing() as connection:
            found = connection.execute(TOKENS, of).first()
            if found is None:
                full = lease(None, rate, 0, now).left
                row = {"rule": rule, "target": target, "count": full.count, "at": full.at}
                connection.execute(insert_or_skip(target_tokens), row)
                found = connection.execute(TOKENS, of).one()
            given = lease(Bucket(*found), rate, wanted, now)
            connection.execute(CHANGE_TOKENS, of | {"left": given.left.count, "now": given.left.at})
            return given


def record_attempts(connection: sa.Connection, tallies: Sequence[Tally], now: datetime) -> None:
    """Count attempts by target and second, and change the statuses of targets as the breaker decides.

    A target gets its first status with its first failure, slow or missing response, or pause.
    """
    if not tallies:
        return
    tallies = sorted(tallies, key=lambda each: (each.rule, each.target))  # so that two pushes cannot deadlock
    _count(connection, tallies)
    first = first_second(now)
    before = [{"of_rule": tally.rule, "of_target": tally.target, "before_second": first} for tally in tallies]
    connection.execute(FORGET_ATTEMPTS, before)
    known = {(row.rule, row.target) for row in connection.execute(TARGET_STATUSES)}
    for tally in tallies:
        if not tally.is_word_against and (tally.rule, tally.target) not in known:
            continue
        of = {"of_rule": tally.rule, "of_target": tally.target}
        old = _locked_status(connection, tally.rule, tally.target, now)
        sums = connection.execute(WINDOW, of | {"from_second": first}).one()
        new = next_status(old, tally, Count(*(int(each or 0) for each in sums)), now)
        _change(connection, old, new)
        if new.state == "ok" and old.state != "ok":
            # attempts from before the recovery must not open the breaker again
            connection.execute(FORGET_ATTEMPTS, of | {"before_second": int(now.timestamp()) + 1})


def _count(connection: sa.Connection, tallies: Sequence[Tally]) -> None:
    """Add the counts of tallies, always in two statements, because a chunk may have thousands of targets."""
    rows, changes = [], []
    for tally in tallies:
        for second, count in sorted(tally.counts.items()):
            rows.append({"rule": tally.rule, "target": tally.target, "second": second} | Count()._asdict())
            change = {"of_rule": tally.rule, "of_target": tally.target, "of_second": second}
            changes.append(change | {f"more_{name}": number for name, number in count._asdict().items()})
    if rows:
        connection.execute(insert_or_skip(target_window), rows)
        connection.execute(ADD_ATTEMPTS, changes)


def _locked_status(connection: sa.Connection, rule: str, target: str, now: datetime) -> TargetStatus:
    of = {"of_rule": rule, "of_target": target}
    found = connection.execute(TARGET_STATUS, of).first()
    if found is None:
        connection.execute(insert_or_skip(target_status), vars(TargetStatus(rule, target, "ok", "", now)))
        found = connection.execute(TARGET_STATUS, of).one()
    return TargetStatus(**found._mapping)


def _change(connection: sa.Connection, old: TargetStatus, new: TargetStatus) -> None:
    if new == old:
        return
    change = {
        "of_rule": new.rule,
        "of_target": new.target,
        "to": new.state,
        "because": new.reason,
        "from_then": new.since,
        "till": new.until,
        "good_probes": new.good,
        "is_slow": new.slow,
        "failing_from": new.failing_since,
        "paused_till": new.paused_until,
    }
    connection.execute(CHANGE_TARGET_STATUS, change)
    event = target_event(old, new)
    queue_events(connection, [event] if event is not None else [])
