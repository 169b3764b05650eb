"""Statements about references, shares of batches that are not routed yet, and about rules that are on hold."""

from __future__ import annotations

from sqlalchemy import BigInteger, Text, bindparam, exists, or_, select, type_coerce, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert, insert_or_skip
from eventbridge.ledger.statements.loose_index_scan import on, one_of_each
from eventbridge.ledger.tables import REFERENCE_SCHEDULED, REFERENCE_TAKEN, REFERENCE_WAITING, reference, rule_status

_NOW = bindparam("now", type_=UtcTime)
_FREE = REFERENCE_WAITING & reference.c.taken_by.is_(None)
_RULE = reference.c.rule == bindparam("of_rule")
_ON_HOLD_FOR = bindparam("microseconds", type_=BigInteger) - type_coerce(reference.c.due_at, BigInteger)

#: Adds references.
INSERT_REFERENCES = insert(reference)

#: All references, in the order they were made.
REFERENCES = select(reference).order_by(reference.c.reference_id)

#: What a batch made references of.
REFERENCES_OF = REFERENCES.where(reference.c.batch_id == bindparam("of_batch"))

#: What a batch took up.
REFERENCES_TAKEN_BY = REFERENCES.where(reference.c.taken_by == bindparam("of_batch"))

#: What waits, taken or not, the oldest first.
WAITING_REFERENCES = select(reference).where(REFERENCE_WAITING).order_by(reference.c.made_at, reference.c.reference_id)

_SAYS_WHERE = type_coerce(reference.c.order_spans, Text) != "[]"
_NOT_TAKEN_BY = or_(reference.c.taken_by.is_(None), reference.c.taken_by != bindparam("of_batch"))

#: Where the events of a rule lie that wait to be routed, but for those that a batch took.
WAITING_SPANS = select(reference.c.order_spans).where(REFERENCE_WAITING, _RULE, _NOT_TAKEN_BY, _SAYS_WHERE)

#: References of a rule that wait and do not say where their events lie, but for those that a batch took.
WITHOUT_SPANS = select(reference).where(REFERENCE_WAITING, _RULE, _NOT_TAKEN_BY, ~_SAYS_WHERE)

_taken = reference.alias("taken")
_one = one_of_each([reference.c.rule], REFERENCE_SCHEDULED)
_due = reference.alias("due")
_of_rule = (_due.c.rule == reference.c.rule, on(_due, REFERENCE_SCHEDULED), _due.c.due_at <= _NOW)

#: One reference that is due by now, of a rule of which no batch has taken up another: nothing more is taken of that.
ONE_DUE = (
    select(reference.c.reference_id)
    .where(
        reference.c.reference_id == _one.c.reference_id,
        exists().where(*_of_rule),
        ~exists().where(_taken.c.rule == reference.c.rule, on(_taken, REFERENCE_TAKEN)),
    )
    .limit(1)
)

#: One reference that waits, taken or not.
ONE_REFERENCE = select(reference.c.reference_id).where(REFERENCE_WAITING).limit(1)

#: One reference that a batch under way has taken up.
ONE_REFERENCE_TAKEN = select(reference.c.reference_id).where(REFERENCE_TAKEN).limit(1)

#: Which of some references are free to be taken; they stay so until the transaction ends.
FREE_REFERENCES = (
    select(reference.c.reference_id)
    .where(reference.c.reference_id.in_(bindparam("ids", expanding=True)), _FREE)
    .with_for_update()
)

#: Takes free references for a batch.
TAKE_REFERENCES = (
    update(reference)
    .where(reference.c.reference_id.in_(bindparam("ids", expanding=True)), _FREE)
    .values(taken_by=bindparam("of_batch"))
)

#: Closes what a batch took up.
CLOSE_REFERENCES = (
    update(reference)
    .where(reference.c.taken_by == bindparam("of_batch"), REFERENCE_WAITING)
    .values(state="closed", closed_by=bindparam("of_batch"))
)

#: Holds what of a rule is not taken; its due time then says since when.
HOLD_REFERENCES = (
    update(reference).where(_FREE, _RULE, reference.c.state == "scheduled").values(state="on_hold", due_at=_NOW)
)

#: Defers what is due of a rule and has not reached its age.
POSTPONE_REFERENCES = (
    update(reference)
    .where(
        _FREE,
        _RULE,
        reference.c.state == "scheduled",
        reference.c.due_at <= _NOW,
        reference.c.expires_at.is_(None) | (reference.c.expires_at > _NOW),
    )
    .values(due_at=bindparam("until", type_=UtcTime))
)

#: Makes what is on hold of a rule due now; the time it was on hold does not count towards its age.
RELEASE_REFERENCES = (
    update(reference)
    .where(_FREE, _RULE, reference.c.state == "on_hold")
    .values(
        state="scheduled",
        due_at=_NOW,
        on_hold_seconds=reference.c.on_hold_seconds + _ON_HOLD_FOR / 1_000_000.0,
        expires_at=type_coerce(reference.c.expires_at, BigInteger) + _ON_HOLD_FOR,
    )
)

#: The rules that are on hold.
RULES_ON_HOLD = select(rule_status).where(rule_status.c.state == "on_hold").order_by(rule_status.c.rule)

#: Notes how a rule stands, unless something is noted already.
NOTE_RULE = insert_or_skip(rule_status)

#: Changes how a rule stands.
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
