"""Statements about expired batches, the needs that keep them, and their removal."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Delete,
    Select,
    Text,
    bindparam,
    delete,
    exists,
    or_,
    select,
    tuple_,
    type_coerce,
    union_all,
    update,
)

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import word
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.loose_index_scan import one_of_each
from eventbridge.ledger.tables import (
    UNCLEARED,
    batch,
    batch_file,
    batch_range,
    deferred_match,
    delivery_chunk,
    pending,
    redrive,
    redriven,
    replay,
    replayed,
    route_try,
    rule_change,
    rules_in_force,
    sweep,
)
from eventbridge.model.storage import STEPS, Kept

_OF_BATCH: BindParameter[str] = bindparam("of_batch", type_=Text())
_TIME = bindparam("at", type_=UtcTime)

#: Batches that retention has marked and not cleared.
UNCLEARED_BATCHES = select(batch).where(UNCLEARED).order_by(batch.c.batch_id).limit(bindparam("most"))

#: Marks what is kept of a committed batch from now on: compare and set.
MARK_KEPT = (
    update(batch)
    .where(batch.c.batch_id == _OF_BATCH, batch.c.state == "committed", batch.c.kept == bindparam("expected"))
    .values(kept=bindparam("to"))
)

#: Records which records of a batch still exist: compare and set.
MARK_CLEARED = (
    update(batch)
    .where(batch.c.batch_id == _OF_BATCH, batch.c.cleared == bindparam("expected"))
    .values(cleared=bindparam("to"))
)

#: The replays and redrives that have not ended, by id.
OPEN_REQUESTS = (
    select(replay.c.replay_id.label("request"))
    .where(replay.c.state.in_(["running", "paused"]))
    .union_all(select(redrive.c.redrive_id).where(redrive.c.state == "running"))
)

_taker = batch.alias("taker")

#: A delivery or a share of a batch that waits for another one.
WAITS = (
    select(pending.c.batch_id)
    .where(pending.c.batch_id == _OF_BATCH, pending.c.state != "closed")
    .union_all(
        select(deferred_match.c.batch_id).where(
            deferred_match.c.batch_id == _OF_BATCH, deferred_match.c.state != "closed"
        )
    )
    .limit(1)
)


def _kept_whole(batch_id: Any) -> ColumnElement[bool]:
    """Return the condition that a batch is kept whole, as a lookup of its row: in a join SQLite would read all such."""
    return select(_taker.c.kept).where(_taker.c.batch_id == batch_id).scalar_subquery() == "all"


#: The rows of a batch that a batch which is kept whole took.
WHOLE_TAKER = union_all(
    select(pending.c.taken_by).where(pending.c.batch_id == _OF_BATCH, _kept_whole(pending.c.taken_by)),
    select(deferred_match.c.taken_by).where(
        deferred_match.c.batch_id == _OF_BATCH, _kept_whole(deferred_match.c.taken_by)
    ),
).limit(1)

_letters = select(batch_file.c.path).where(batch_file.c.batch_id == _OF_BATCH, batch_file.c.kind == "dead_letter")

#: The dead letters of a batch that a batch which is kept whole took.
WHOLE_REDRIVE = (
    select(redriven.c.batch_id).where(redriven.c.file.in_(_letters), _kept_whole(redriven.c.batch_id)).limit(1)
)

#: The rows of other batches that still name a batch which took them.
NAMED_AS_TAKER = union_all(
    select(pending.c.batch_id).where(pending.c.taken_by == _OF_BATCH),
    select(deferred_match.c.batch_id).where(deferred_match.c.taken_by == _OF_BATCH),
    select(redriven.c.file).where(redriven.c.batch_id == _OF_BATCH),
).limit(1)

_other = batch.alias("other")
_of_group = (
    _other.c.kept.in_(list(STEPS)),  # so that the index, whose first column it is, is used
    _other.c.runner == bindparam("of_runner"),
    _other.c.bus == bindparam("of_bus"),
    _other.c.kind == bindparam("of_kind"),
)
_place = tuple_(_other.c.planned_at, _other.c.batch_id)

#: A batch of the same runner, bus and kind that was planned later.
LATER_BATCH = (
    select(_other.c.batch_id).where(*_of_group, _place > tuple_(_TIME, _OF_BATCH, types=[UtcTime(), Text()])).limit(1)
)

#: One that was planned earlier.
EARLIER_BATCH = (
    select(_other.c.batch_id).where(*_of_group, _place < tuple_(_TIME, _OF_BATCH, types=[UtcTime(), Text()])).limit(1)
)

#: The files that a batch has on record, with their kinds.
PATHS = select(batch_file.c.kind, batch_file.c.path).where(
    batch_file.c.batch_id == _OF_BATCH, batch_file.c.path.is_not(None)
)

#: Whether anything but a batch names its rule set: another batch, what is in force, the history of a rule, a replay.
RULE_SET_NAMED = select(
    or_(
        exists().where(batch.c.rule_set == bindparam("of_rules"), batch.c.batch_id != _OF_BATCH),
        exists().where(rules_in_force.c.rule_set == bindparam("of_rules")),
        exists().where(rule_change.c.rule_set == bindparam("of_rules")),
        exists().where(
            replay.c.state.in_(["running", "paused"]), type_coerce(replay.c.parts, Text).contains(bindparam("of_rules"))
        ),
    )
)

_later_change = rule_change.alias("later")

#: Changes of rules before a time that a later change of the same rule followed, the oldest first.
OLD_RULE_CHANGES = (
    select(rule_change.c.change_id, rule_change.c.rule_set)
    .where(
        rule_change.c.at < _TIME,
        exists().where(_later_change.c.rule == rule_change.c.rule, _later_change.c.change_id > rule_change.c.change_id),
    )
    .order_by(rule_change.c.change_id)
    .limit(bindparam("most"))
)

#: Deletes changes of rules.
DROP_RULE_CHANGES = delete(rule_change).where(rule_change.c.change_id.in_(bindparam("ids", expanding=True)))

#: Replays that ended before a time and of which no batch is kept whole.
OLD_REPLAYS = (
    select(replay.c.replay_id)
    .where(
        replay.c.ended_at < _TIME,
        ~exists().where(replayed.c.replay_id == replay.c.replay_id, _kept_whole(replayed.c.batch_id)),
    )
    .limit(bindparam("most"))
)

#: The newest normal batch of a bus, planned within a time, whose archive is gone.
PRUNED_ARCHIVE = (
    select(batch.c.planned_at)
    .where(
        batch.c.planned_at >= bindparam("since", type_=UtcTime),
        batch.c.planned_at < bindparam("until", type_=UtcTime),
        batch.c.kind == "normal",
        batch.c.bus == bindparam("of_bus"),
        batch.c.kept.not_in(bindparam("enough", expanding=True)),
    )
    .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    .limit(1)
)

#: Deletes a replay without rows.
DROP_REPLAY = delete(replay).where(
    replay.c.replay_id == bindparam("of_replay"), ~exists().where(replayed.c.replay_id == replay.c.replay_id)
)

#: Deletes redrives that ended before a time and whose dead letters are gone.
DROP_REDRIVES = delete(redrive).where(
    redrive.c.ended_at < _TIME, ~exists().where(redriven.c.redrive_id == redrive.c.redrive_id)
)

#: How far the store was swept.
SWEPT = select(sweep.c.through).where(sweep.c.name == bindparam("of_sweep"))

#: Records the first sweep.
NOTE_SWEEP = insert_or_skip(sweep)

#: Records how far the store was swept; never back.
MOVE_SWEEP = update(sweep).where(sweep.c.name == bindparam("of_sweep"), sweep.c.through < _TIME).values(through=_TIME)

#: When the first batch was planned from a time on.
FIRST_BATCH = (
    select(batch.c.planned_at)
    .where(batch.c.planned_at >= _TIME)
    .order_by(batch.c.planned_at, batch.c.batch_id)
    .limit(1)
)

#: Deletes the row of a batch.
DROP_BATCH = delete(batch).where(batch.c.batch_id == _OF_BATCH)


def _some(table: Any, *where: Any) -> Delete:
    """Return the statement that deletes a bounded number of rows of a table."""
    key = tuple_(*table.primary_key)
    chosen = select(*table.primary_key).where(*where).limit(bindparam("most"))
    return delete(table).where(key.in_(chosen))


def _files(*kinds: str) -> Delete:
    return _some(batch_file, batch_file.c.batch_id == _OF_BATCH, batch_file.c.kind.in_(kinds))


#: The statements that delete the ledger's rows when a batch loses records: at most `most` rows each, in order.
DROPS: dict[Kept, tuple[Delete, ...]] = {
    "all": (
        _some(pending, pending.c.batch_id == _OF_BATCH),
        _some(deferred_match, deferred_match.c.batch_id == _OF_BATCH),
        _some(delivery_chunk, delivery_chunk.c.batch_id == _OF_BATCH),
        _some(route_try, route_try.c.batch_id == _OF_BATCH),
        _files("delivery", "outcome", "settlement"),
    ),
    "archive": (_files("buffer"),),
    "dead_letters": (_some(redriven, redriven.c.file.in_(_letters)), _files("dead_letter")),
    "manifest": (
        _some(replayed, replayed.c.batch_id == _OF_BATCH),
        _some(batch_range, batch_range.c.batch_id == _OF_BATCH),
    ),
}

#: The statements that delete the rows of a replay.
DROP_REPLAYED = _some(replayed, replayed.c.replay_id == bindparam("of_replay"))


@cache
def groups(kept: Kept) -> Select[Any]:
    """Return the query for each runner and bus with a batch of which this is kept, in order; it reads a row of each."""
    one = one_of_each([batch.c.runner, batch.c.bus], batch.c.kept == word(kept))
    found = select(batch.c.runner, batch.c.bus).where(batch.c.batch_id == one.c.batch_id)
    return found.order_by(batch.c.runner, batch.c.bus)  # batches that took rows go first: they name no bus


def expired(*, newest_first: bool, behind: bool) -> Select[Any]:
    """Return the query for committed batches of a group planned before a time; `behind`: after another one's place."""
    place = tuple_(batch.c.planned_at, batch.c.batch_id)
    found = select(batch).where(
        batch.c.kept == bindparam("of_kept"),
        batch.c.runner == bindparam("of_runner"),
        batch.c.bus == bindparam("of_bus"),
        batch.c.state == word("committed"),
    )
    if behind:
        last = tuple_(_TIME, _OF_BATCH, types=[UtcTime(), Text()])
        found = found.where(place < last if newest_first else place > last)
    if not (behind and newest_first):  # with two upper bounds SQLite may enter the index at the wrong one
        found = found.where(batch.c.planned_at < bindparam("before", type_=UtcTime))
    order = (
        (batch.c.planned_at.desc(), batch.c.batch_id.desc()) if newest_first else (batch.c.planned_at, batch.c.batch_id)
    )
    return found.order_by(*order).limit(bindparam("most"))
