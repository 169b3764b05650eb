"""Statements about the statuses of targets."""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, bindparam, delete, func, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import target_status, target_tokens, target_window

_STATUS = (target_status.c.rule == bindparam("of_rule")) & (target_status.c.target == bindparam("of_target"))
_WINDOW = (target_window.c.rule == bindparam("of_rule")) & (target_window.c.target == bindparam("of_target"))
_NOW = bindparam("now", type_=UtcTime)

#: The statuses of targets that were not always ok.
TARGET_STATUSES = select(target_status).order_by(target_status.c.rule, target_status.c.target)

#: The status of a target, locked until the transaction ends.
TARGET_STATUS = select(target_status).where(_STATUS).with_for_update()

#: Adds the status of a target, unless it has one.
NOTE_TARGET_STATUS = insert_or_skip(target_status)

#: Changes the status of a target.
CHANGE_TARGET_STATUS = (
    update(target_status)
    .where(_STATUS)
    .values(
        state=bindparam("to"),
        reason=bindparam("because", type_=target_status.c.reason.type),
        since=bindparam("from_then", type_=UtcTime),
        until=bindparam("till", type_=UtcTime),
        good=bindparam("good_probes"),
        slow=bindparam("is_slow"),
        failing_since=bindparam("failing_from", type_=UtcTime),
        paused_until=bindparam("paused_till", type_=UtcTime),
    )
)

#: Gives the right to probe to one push, until a time: to the first that asks once the breaker lets probes through.
CLAIM_PROBE = (
    update(target_status)
    .where(
        _STATUS,
        target_status.c.state.in_(["degraded", "half-open"]),
        target_status.c.until.is_(None) | (target_status.c.until <= _NOW),
    )
    .values(until=bindparam("till", type_=UtcTime))
)

#: The content of a target's bucket, locked until the transaction ends.
TOKENS = (
    select(target_tokens.c.count, target_tokens.c.at)
    .where(target_tokens.c.rule == bindparam("of_rule"), target_tokens.c.target == bindparam("of_target"))
    .with_for_update()
)

#: Makes a target's bucket, unless it exists.
NOTE_TOKENS = insert_or_skip(target_tokens)

#: Changes the content of a target's bucket.
CHANGE_TOKENS = (
    update(target_tokens)
    .where(target_tokens.c.rule == bindparam("of_rule"), target_tokens.c.target == bindparam("of_target"))
    .values(count=bindparam("left", type_=Float), at=_NOW)
)

#: Begins to count the attempts of a second.
NOTE_ATTEMPTS = insert_or_skip(target_window)

#: Counts attempts of a second.
ADD_ATTEMPTS = (
    update(target_window)
    .where(_WINDOW, target_window.c.second == bindparam("of_second"))
    .values(
        attempts=target_window.c.attempts + bindparam("more_attempts", type_=BigInteger),
        failed=target_window.c.failed + bindparam("more_failed", type_=BigInteger),
        slow=target_window.c.slow + bindparam("more_slow", type_=BigInteger),
    )
)

#: Attempts at a target since a second, how many of them failed, and how many were slow.
WINDOW = select(
    func.sum(target_window.c.attempts), func.sum(target_window.c.failed), func.sum(target_window.c.slow)
).where(_WINDOW, target_window.c.second >= bindparam("from_second"))

#: Forgets the attempts at a target before a second.
FORGET_ATTEMPTS = delete(target_window).where(_WINDOW, target_window.c.second < bindparam("before_second"))
