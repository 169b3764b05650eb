"""Statements about deferred matches, shares of batches that are not routed yet, and about rules that are on hold."""

from __future__ import annotations

from sqlalchemy import BigInteger, Text, bindparam, exists, or_, select, type_coerce, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert, insert_or_skip
from eventbridge.ledger.statements.loose_index_scan import on, one_of_each
from eventbridge.ledger.tables import (
    DEFERRED_MATCH_SCHEDULED,
    DEFERRED_MATCH_TAKEN,
    DEFERRED_MATCH_WAITING,
    deferred_match,
    rule_status,
)

_NOW = bindparam("now", type_=UtcTime)
_FREE = DEFERRED_MATCH_WAITING & deferred_match.c.taken_by.is_(None)
_RULE = deferred_match.c.rule == bindparam("of_rule")
_ON_HOLD_FOR = bindparam("microseconds", type_=BigInteger) - type_coerce(deferred_match.c.due_at, BigInteger)

#: Adds deferred matches.
INSERT_DEFERRED_MATCHES = insert(deferred_match)

#: All deferred matches, in the order they were made.
DEFERRED_MATCHES = select(deferred_match).order_by(deferred_match.c.deferred_match_id)

#: The deferred matches that a batch made.
DEFERRED_MATCHES_OF = DEFERRED_MATCHES.where(deferred_match.c.batch_id == bindparam("of_batch"))

#: The deferred matches that a batch took.
DEFERRED_MATCHES_TAKEN_BY = DEFERRED_MATCHES.where(deferred_match.c.taken_by == bindparam("of_batch"))

#: The waiting deferred matches, taken or not, oldest first.
WAITING_DEFERRED_MATCHES = (
    select(deferred_match)
    .where(DEFERRED_MATCH_WAITING)
    .order_by(deferred_match.c.made_at, deferred_match.c.deferred_match_id)
)

_SAYS_WHERE = type_coerce(deferred_match.c.order_spans, Text) != "[]"
_NOT_TAKEN_BY = or_(deferred_match.c.taken_by.is_(None), deferred_match.c.taken_by != bindparam("of_batch"))

#: The positions of a rule's events that wait to be routed, except those that a batch took.
WAITING_SPANS = select(deferred_match.c.order_spans).where(DEFERRED_MATCH_WAITING, _RULE, _NOT_TAKEN_BY, _SAYS_WHERE)

#: Waiting deferred matches of a rule without positions of their events, except those that a batch took.
WITHOUT_SPANS = select(deferred_match).where(DEFERRED_MATCH_WAITING, _RULE, _NOT_TAKEN_BY, ~_SAYS_WHERE)

_taken = deferred_match.alias("taken")
_one = one_of_each([deferred_match.c.rule], DEFERRED_MATCH_SCHEDULED)
_due = deferred_match.alias("due")
_of_rule = (_due.c.rule == deferred_match.c.rule, on(_due, DEFERRED_MATCH_SCHEDULED), _due.c.due_at <= _NOW)

#: One deferred match that is due by now, of a rule of which no batch has taken another: such a rule must wait.
ONE_DUE = (
    select(deferred_match.c.deferred_match_id)
    .where(
        deferred_match.c.deferred_match_id == _one.c.deferred_match_id,
        exists().where(*_of_rule),
        ~exists().where(_taken.c.rule == deferred_match.c.rule, on(_taken, DEFERRED_MATCH_TAKEN)),
    )
    .limit(1)
)

#: One deferred match that waits, taken or not.
ONE_DEFERRED_MATCH = select(deferred_match.c.deferred_match_id).where(DEFERRED_MATCH_WAITING).limit(1)

#: One deferred match that an uncommitted batch has taken.
ONE_DEFERRED_MATCH_TAKEN = select(deferred_match.c.deferred_match_id).where(DEFERRED_MATCH_TAKEN).limit(1)

#: Which of some deferred matches are free to be taken; locked until the transaction ends.
FREE_DEFERRED_MATCHES = (
    select(deferred_match.c.deferred_match_id)
    .where(deferred_match.c.deferred_match_id.in_(bindparam("ids", expanding=True)), _FREE)
    .with_for_update()
)

#: Takes free deferred matches for a batch.
TAKE_DEFERRED_MATCHES = (
    update(deferred_match)
    .where(deferred_match.c.deferred_match_id.in_(bindparam("ids", expanding=True)), _FREE)
    .values(taken_by=bindparam("of_batch"))
)

#: Closes the deferred matches that a batch took.
CLOSE_DEFERRED_MATCHES = (
    update(deferred_match)
    .where(deferred_match.c.taken_by == bindparam("of_batch"), DEFERRED_MATCH_WAITING)
    .values(state="closed", closed_by=bindparam("of_batch"))
)

#: Puts the untaken deferred matches of a rule on hold; their due time is then the start of the hold.
HOLD_DEFERRED_MATCHES = (
    update(deferred_match)
    .where(_FREE, _RULE, deferred_match.c.state == "scheduled")
    .values(state="on_hold", due_at=_NOW)
)

#: Defers the due deferred matches of a rule that have not expired.
POSTPONE_DEFERRED_MATCHES = (
    update(deferred_match)
    .where(
        _FREE,
        _RULE,
        deferred_match.c.state == "scheduled",
        deferred_match.c.due_at <= _NOW,
        deferred_match.c.expires_at.is_(None) | (deferred_match.c.expires_at > _NOW),
    )
    .values(due_at=bindparam("until", type_=UtcTime))
)

#: Makes the deferred matches of a rule that are on hold due now; the time on hold does not count towards their age.
RELEASE_DEFERRED_MATCHES = (
    update(deferred_match)
    .where(_FREE, _RULE, deferred_match.c.state == "on_hold")
    .values(
        state="scheduled",
        due_at=_NOW,
        on_hold_seconds=deferred_match.c.on_hold_seconds + _ON_HOLD_FOR / 1_000_000.0,
        expires_at=type_coerce(deferred_match.c.expires_at, BigInteger) + _ON_HOLD_FOR,
    )
)

#: The rules that are on hold.
RULES_ON_HOLD = select(rule_status).where(rule_status.c.state == "on_hold").order_by(rule_status.c.rule)

#: Adds the hold of a rule, unless it has one.
NOTE_RULE = insert_or_skip(rule_status)

#: Changes the hold of a rule.
CHANGE_RULE = (
    update(rule_status)
    .where(rule_status.c.rule == bindparam("of_rule"))
    .values(
        state=bindparam("to"),
        version=bindparam("of_version"),
        reason=bindparam("because", type_=rule_status.c.reason.type),
        since=_NOW,
    )
)
