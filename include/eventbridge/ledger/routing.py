"""Stores what routing needs in the ledger: how often each slice was tried, and deferred matches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.batches import INSERT_BATCH
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import (
    NOW,
    NUMBERED,
    JsonText,
    RowId,
    UtcTime,
    insert,
    insert_or_skip,
    metadata,
    microseconds,
    one_of,
    partial,
    to_spans,
    word,
)
from eventbridge.ledger.loose_index_scan import on_alias, one_of_each
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Span
from eventbridge.model.pending import DeferredMatch, PendingState

#: The number of tries of each slice that began and were not taken back; slice "" stands for all remaining slices of a
#: batch, which are tried as one job.
route_try = sa.Table(
    "route_try",
    metadata,
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id"), nullable=False),
    sa.Column("slice_id", sa.Text, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("batch_id", "slice_id"),
)

#: A rule's share of a batch that is not routed yet.
deferred_match = sa.Table(
    "deferred_match",
    metadata,
    sa.Column("deferred_match_id", RowId, primary_key=True),
    sa.Column("batch_id", sa.Text, sa.ForeignKey("batch.batch_id"), nullable=False),
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("files", JsonText, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("due_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("made_at", UtcTime, nullable=False),
    sa.Column("taken_by", sa.Text, sa.ForeignKey("batch.batch_id")),
    sa.Column("closed_by", sa.Text, sa.ForeignKey("batch.batch_id")),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("on_hold_seconds", sa.Float, nullable=False, server_default="0"),
    sa.Column("order_spans", JsonText, nullable=False, server_default="[]"),
    sa.UniqueConstraint("batch_id", "rule", "reason"),
    one_of("state", PendingState),
    **NUMBERED,
)

DEFERRED_MATCH_WAITING = deferred_match.c.state != word("closed")

DEFERRED_MATCH_SCHEDULED = (deferred_match.c.state == word("scheduled")) & deferred_match.c.taken_by.is_(None)

DEFERRED_MATCH_TAKEN = DEFERRED_MATCH_WAITING & deferred_match.c.taken_by.is_not(None)
partial("ix_deferred_match_waiting", DEFERRED_MATCH_WAITING, deferred_match.c.rule)
partial("ix_deferred_match_scheduled", DEFERRED_MATCH_SCHEDULED, deferred_match.c.rule, deferred_match.c.due_at)
partial("ix_deferred_match_taken", DEFERRED_MATCH_TAKEN, deferred_match.c.rule)
partial("ix_deferred_match_taken_by", deferred_match.c.taken_by.is_not(None), deferred_match.c.taken_by)
# Without this index, the foreign key makes the database read all deferred matches for every batch that is removed.
partial("ix_deferred_match_closed_by", deferred_match.c.closed_by.is_not(None), deferred_match.c.closed_by)

_SLICE = (route_try.c.batch_id == sa.bindparam("of_batch")) & (route_try.c.slice_id == sa.bindparam("of_slice"))

#: Adds `more` to the number of tries of a slice; -1 takes one back.
ADD_TRY = sa.update(route_try).where(_SLICE).values(tries=route_try.c.tries + sa.bindparam("more"))

#: The number of tries for each slice of a batch.
TRIES = sa.select(route_try.c.slice_id, route_try.c.tries).where(route_try.c.batch_id == sa.bindparam("of_batch"))

_FREE = DEFERRED_MATCH_WAITING & deferred_match.c.taken_by.is_(None)
_RULE = deferred_match.c.rule == sa.bindparam("of_rule")
_ON_HOLD_FOR = sa.bindparam("microseconds", type_=sa.BigInteger) - sa.type_coerce(
    deferred_match.c.due_at, sa.BigInteger
)

#: All deferred matches, in the order they were made.
DEFERRED_MATCHES = sa.select(deferred_match).order_by(deferred_match.c.deferred_match_id)

#: The deferred matches that a batch made.
DEFERRED_MATCHES_OF = DEFERRED_MATCHES.where(deferred_match.c.batch_id == sa.bindparam("of_batch"))

#: The deferred matches that a batch took.
DEFERRED_MATCHES_TAKEN_BY = DEFERRED_MATCHES.where(deferred_match.c.taken_by == sa.bindparam("of_batch"))

#: The waiting deferred matches, taken or not, oldest first.
WAITING_DEFERRED_MATCHES = (
    sa.select(deferred_match)
    .where(DEFERRED_MATCH_WAITING)
    .order_by(deferred_match.c.made_at, deferred_match.c.deferred_match_id)
)

_HAS_SPANS = sa.type_coerce(deferred_match.c.order_spans, sa.Text) != "[]"
_NOT_TAKEN_BY = sa.or_(deferred_match.c.taken_by.is_(None), deferred_match.c.taken_by != sa.bindparam("of_batch"))

#: The positions of a rule's events that are waiting to be routed, except those that a batch took.
WAITING_SPANS = sa.select(deferred_match.c.order_spans).where(DEFERRED_MATCH_WAITING, _RULE, _NOT_TAKEN_BY, _HAS_SPANS)

#: Those waiting deferred matches of a rule that have no positions of their events, except those that a batch took.
WITHOUT_SPANS = sa.select(deferred_match).where(DEFERRED_MATCH_WAITING, _RULE, _NOT_TAKEN_BY, ~_HAS_SPANS)

_taken = deferred_match.alias("taken")
_one = one_of_each([deferred_match.c.rule], DEFERRED_MATCH_SCHEDULED)
_due = deferred_match.alias("due")
_of_rule = (_due.c.rule == deferred_match.c.rule, on_alias(_due, DEFERRED_MATCH_SCHEDULED), _due.c.due_at <= NOW)

#: One due deferred match of a rule, unless an uncommitted batch has taken any match of the rule, because one batch at a
#: time routes the deferred matches of a rule.
ONE_DUE = (
    sa.select(deferred_match.c.deferred_match_id)
    .where(
        deferred_match.c.deferred_match_id == _one.c.deferred_match_id,
        sa.exists().where(*_of_rule),
        ~sa.exists().where(_taken.c.rule == deferred_match.c.rule, on_alias(_taken, DEFERRED_MATCH_TAKEN)),
    )
    .limit(1)
)

#: One deferred match that is not closed, taken or not.
ONE_DEFERRED_MATCH = sa.select(deferred_match.c.deferred_match_id).where(DEFERRED_MATCH_WAITING).limit(1)

#: One deferred match that an uncommitted batch has taken.
ONE_DEFERRED_MATCH_TAKEN = sa.select(deferred_match.c.deferred_match_id).where(DEFERRED_MATCH_TAKEN).limit(1)

#: Those of the given deferred matches that no batch has taken; locked until the transaction ends.
FREE_DEFERRED_MATCHES = (
    sa.select(deferred_match.c.deferred_match_id)
    .where(deferred_match.c.deferred_match_id.in_(sa.bindparam("ids", expanding=True)), _FREE)
    .with_for_update()
)

#: Takes free deferred matches for a batch.
TAKE_DEFERRED_MATCHES = (
    sa.update(deferred_match)
    .where(deferred_match.c.deferred_match_id.in_(sa.bindparam("ids", expanding=True)), _FREE)
    .values(taken_by=sa.bindparam("of_batch"))
)

#: Closes the deferred matches that a batch took.
CLOSE_DEFERRED_MATCHES = (
    sa.update(deferred_match)
    .where(deferred_match.c.taken_by == sa.bindparam("of_batch"), DEFERRED_MATCH_WAITING)
    .values(state="closed", closed_by=sa.bindparam("of_batch"))
)

#: Puts the untaken deferred matches of a rule on hold; `due_at` is then the start of the hold.
HOLD_DEFERRED_MATCHES = (
    sa.update(deferred_match)
    .where(_FREE, _RULE, deferred_match.c.state == "scheduled")
    .values(state="on_hold", due_at=NOW)
)

#: Defers those due deferred matches of a rule that have not expired.
POSTPONE_DEFERRED_MATCHES = (
    sa.update(deferred_match)
    .where(
        _FREE,
        _RULE,
        deferred_match.c.state == "scheduled",
        deferred_match.c.due_at <= NOW,
        deferred_match.c.expires_at.is_(None) | (deferred_match.c.expires_at > NOW),
    )
    .values(due_at=sa.bindparam("until", type_=UtcTime))
)

#: Makes a rule's deferred matches that are on hold due now; the time on hold does not count towards their age.
RELEASE_DEFERRED_MATCHES = (
    sa.update(deferred_match)
    .where(_FREE, _RULE, deferred_match.c.state == "on_hold")
    .values(
        state="scheduled",
        due_at=NOW,
        on_hold_seconds=deferred_match.c.on_hold_seconds + _ON_HOLD_FOR / 1_000_000.0,
        expires_at=sa.type_coerce(deferred_match.c.expires_at, sa.BigInteger) + _ON_HOLD_FOR,
    )
)


class RouteTries(Aggregate):
    """Counts the tries of slices. A try is counted before it starts, because it may crash its process."""

    def begin(self, batch_id: str, slice_id: str, before: int = 0) -> int:
        """Count one more try of a slice, or of all remaining slices if `slice_id` is empty, and return the total.

        `before` is the number of tries that an earlier batch counted for the same events; the first try adds it.
        """
        of = {"of_batch": batch_id, "of_slice": slice_id}
        with self._writing() as connection:
            connection.execute(insert_or_skip(route_try), {"batch_id": batch_id, "slice_id": slice_id, "tries": before})
            connection.execute(ADD_TRY, of | {"more": 1})
            return int(connection.execute(sa.select(route_try.c.tries).where(_SLICE), of).scalar_one())

    def take_back(self, batch_id: str, slice_id: str) -> None:
        """Subtract a try that is no evidence against its slice, because it succeeded or failed for another reason."""
        self._change(ADD_TRY, {"of_batch": batch_id, "of_slice": slice_id, "more": -1})

    def counts(self, batch_id: str) -> dict[str, int]:
        """Return the counted tries by slice; a slice without any is absent."""
        rows = self._rows(TRIES, {"of_batch": batch_id})
        return {row.slice_id: row.tries for row in rows if row.tries > 0}


class DeferredMatches(Aggregate):
    """Deferred matches: a rule's shares of batches, which are routed later."""

    def all(self) -> list[DeferredMatch]:
        """Return all deferred matches, including closed ones, in the order they were made."""
        return [_to_deferred_match(row) for row in self._rows(DEFERRED_MATCHES)]

    def list_for_batch(self, batch_id: str) -> list[DeferredMatch]:
        """Return the deferred matches that a batch made, in any state."""
        return [_to_deferred_match(row) for row in self._rows(DEFERRED_MATCHES_OF, {"of_batch": batch_id})]

    def list_taken_by(self, batch_id: str) -> list[DeferredMatch]:
        """Return the deferred matches that a batch took, including those it has closed."""
        return [_to_deferred_match(row) for row in self._rows(DEFERRED_MATCHES_TAKEN_BY, {"of_batch": batch_id})]

    def waiting(self, runner: str | None = None) -> list[DeferredMatch]:
        """Return the waiting deferred matches (scheduled, on hold or taken by an uncommitted batch), oldest first."""
        found = [_to_deferred_match(row) for row in self._rows(WAITING_DEFERRED_MATCHES)]
        return [each for each in found if runner in (None, each.runner)]

    def waiting_spans(self, rule: str, *, but: str) -> tuple[list[Span], list[DeferredMatch]]:
        """Return the positions of a rule's events that are waiting to be routed, and its deferred matches without any.

        A deferred match has no positions if its rule had no ordered target when it was made. Deferred matches that the
        batch `but` took are left out.
        """
        of = {"of_rule": rule, "of_batch": but}
        with self._reading() as connection:
            spans = [span for row in connection.execute(WAITING_SPANS, of) for span in to_spans(row[0])]
            return spans, [_to_deferred_match(row) for row in connection.execute(WITHOUT_SPANS, of)]

    def has_due(self, now: datetime) -> bool:
        """Return whether a batch of deferred matches can be planned at `now`.

        The cost depends only on the number of rules.
        """
        return self._first(ONE_DUE, {"now": now}) is not None

    def has_waiting(self) -> bool:
        """Return whether any deferred match is not closed, due or not."""
        return self._first(ONE_DEFERRED_MATCH) is not None

    def has_taken(self) -> bool:
        """Return whether an uncommitted batch has taken deferred matches."""
        return self._first(ONE_DEFERRED_MATCH_TAKEN) is not None

    def take(self, batch: Batch, deferred_match_ids: Sequence[int]) -> bool:
        """Add a batch and assign deferred matches to it.

        Returns False, and changes nothing, if another batch has taken one of them.
        """
        ids = sorted(set(deferred_match_ids))
        with self._writing() as connection:
            if len(connection.execute(FREE_DEFERRED_MATCHES, {"ids": ids}).all()) != len(ids):
                return False
            connection.execute(INSERT_BATCH, vars(batch))
            connection.execute(TAKE_DEFERRED_MATCHES, {"of_batch": batch.batch_id, "ids": ids})
            return True

    def hold(self, rule: str) -> int:
        """Put the untaken deferred matches of a rule on hold; return how many."""
        return self._change(HOLD_DEFERRED_MATCHES, {"of_rule": rule, "now": self._now()})

    def defer(self, rule: str, until: datetime) -> int:
        """Defer, to `until`, those due deferred matches of a rule that have not expired; return how many."""
        change = {"of_rule": rule, "now": self._now(), "until": until}
        return self._change(POSTPONE_DEFERRED_MATCHES, change)

    def release(self, rule: str) -> int:
        """Make due now those deferred matches of a rule that are on hold; return how many.

        Their time on hold is added to `on_hold_seconds` and `expires_at`.
        """
        now = self._now()
        change = {"of_rule": rule, "now": now, "microseconds": microseconds(now)}
        return self._change(RELEASE_DEFERRED_MATCHES, change)


def insert_deferred_matches(connection: sa.Connection, deferred_matches: Sequence[DeferredMatch]) -> None:
    """Add deferred matches, in the transaction that moves their batch to `routed`."""
    if deferred_matches:
        connection.execute(insert(deferred_match), [_deferred_match_row(each) for each in deferred_matches])


def _deferred_match_row(row: DeferredMatch) -> dict[str, Any]:
    values = dict(vars(row))
    del values["deferred_match_id"]
    return values | {"size": 0}  # the size is unknown here, and nothing uses it


def _to_deferred_match(row: sa.Row[Any]) -> DeferredMatch:
    values = dict(row._mapping)
    del values["size"]
    values["files"] = tuple((file, rows) for file, rows in values["files"])
    values["order_spans"] = to_spans(values["order_spans"])
    return DeferredMatch(**values)
