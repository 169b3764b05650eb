"""Applies retention in the ledger: finds expired batches and what still needs them, marks and deletes records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.batches import REMOVAL_PENDING, batch, batch_range, to_batch
from eventbridge.ledger.chunks import delivery_chunk
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata, one_of, word
from eventbridge.ledger.files import batch_file
from eventbridge.ledger.loose_index_scan import one_of_each
from eventbridge.ledger.pending import pending
from eventbridge.ledger.redrives import redrive, redriven
from eventbridge.ledger.replays import replay, replayed
from eventbridge.ledger.revision import TAKE_TURN
from eventbridge.ledger.routing import deferred_match, route_try
from eventbridge.ledger.rules import rule_change, rules_in_force
from eventbridge.ledger.store import take_size
from eventbridge.model.batch import Batch
from eventbridge.model.storage import STEPS, BatchGroup, BatchPosition, Kept, Need, SweepName, is_kept

#: The progress of each sweep, which has handled the files of batches planned before `through`.
sweep = sa.Table(
    "sweep",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("through", UtcTime, nullable=False),
    one_of("name", SweepName),
)

_OF_BATCH: sa.BindParameter[str] = sa.bindparam("of_batch", type_=sa.Text())
_TIME = sa.bindparam("at", type_=UtcTime)

#: Batches with records that are no longer kept but not all removed yet, oldest first.
UNFINISHED_REMOVALS = sa.select(batch).where(REMOVAL_PENDING).order_by(batch.c.batch_id).limit(sa.bindparam("most"))

#: Marks which records of a committed batch are kept from now on (compare and set).
MARK_KEPT = (
    sa.update(batch)
    .where(batch.c.batch_id == _OF_BATCH, batch.c.state == "committed", batch.c.kept == sa.bindparam("expected"))
    .values(kept=sa.bindparam("to"))
)

#: Records which records of a batch still exist (compare and set).
MARK_REMAINING = (
    sa.update(batch)
    .where(batch.c.batch_id == _OF_BATCH, batch.c.remaining == sa.bindparam("expected"))
    .values(remaining=sa.bindparam("to"))
)

#: The replays and redrives that have not ended, by id.
OPEN_REQUESTS = (
    sa.select(replay.c.replay_id.label("request"))
    .where(replay.c.state.in_(["running", "paused"]))
    .union_all(sa.select(redrive.c.redrive_id).where(redrive.c.state == "running"))
)

_taker = batch.alias("taker")

#: A pending delivery or deferred match that a batch recorded and that is not closed.
WAITS = (
    sa.select(pending.c.batch_id)
    .where(pending.c.batch_id == _OF_BATCH, pending.c.state != "closed")
    .union_all(
        sa.select(deferred_match.c.batch_id).where(
            deferred_match.c.batch_id == _OF_BATCH, deferred_match.c.state != "closed"
        )
    )
    .limit(1)
)


#: The files of each pending row and deferred match that is not closed.
FILES_IN_USE = (
    sa.select(pending.c.files)
    .where(pending.c.state != "closed")
    .union_all(sa.select(deferred_match.c.files).where(deferred_match.c.state != "closed"))
)


def _is_kept_whole(batch_id: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a batch has all its records, as a lookup; a join would read all such batches."""
    return sa.select(_taker.c.kept).where(_taker.c.batch_id == batch_id).scalar_subquery() == "all"


#: The batch that took rows of a given batch and still has all its records.
WHOLE_TAKER = sa.union_all(
    sa.select(pending.c.taken_by).where(pending.c.batch_id == _OF_BATCH, _is_kept_whole(pending.c.taken_by)),
    sa.select(deferred_match.c.taken_by).where(
        deferred_match.c.batch_id == _OF_BATCH, _is_kept_whole(deferred_match.c.taken_by)
    ),
).limit(1)

_dead_letters = sa.select(batch_file.c.path).where(
    batch_file.c.batch_id == _OF_BATCH, batch_file.c.kind == "dead_letter"
)

#: The batch that took dead letters of a given batch and still has all its records.
WHOLE_REDRIVE = (
    sa.select(redriven.c.batch_id)
    .where(redriven.c.file.in_(_dead_letters), _is_kept_whole(redriven.c.batch_id))
    .limit(1)
)

#: Rows of other batches that name a batch as the one that took them.
NAMED_AS_TAKER = sa.union_all(
    sa.select(pending.c.batch_id).where(pending.c.taken_by == _OF_BATCH),
    sa.select(deferred_match.c.batch_id).where(deferred_match.c.taken_by == _OF_BATCH),
    sa.select(redriven.c.file).where(redriven.c.batch_id == _OF_BATCH),
).limit(1)

_other = batch.alias("other")
_of_group = (
    _other.c.kept.in_(list(STEPS)),  # true for every batch, but `kept` is the first column of the index to use
    _other.c.runner == sa.bindparam("of_runner"),
    _other.c.bus == sa.bindparam("of_bus"),
    _other.c.kind == sa.bindparam("of_kind"),
)
_position = sa.tuple_(_other.c.planned_at, _other.c.batch_id)

#: A batch of the same runner, bus and kind that was planned later.
LATER_BATCH = (
    sa.select(_other.c.batch_id)
    .where(*_of_group, _position > sa.tuple_(_TIME, _OF_BATCH, types=[UtcTime(), sa.Text()]))
    .limit(1)
)

#: A batch of the same runner, bus and kind that was planned earlier.
EARLIER_BATCH = (
    sa.select(_other.c.batch_id)
    .where(*_of_group, _position < sa.tuple_(_TIME, _OF_BATCH, types=[UtcTime(), sa.Text()]))
    .limit(1)
)

#: Whether anything but a given batch refers to a rule set: another batch, the rules in force, the history of a rule,
#: or a replay that has not ended.
RULE_SET_NAMED = sa.select(
    sa.or_(
        sa.exists().where(batch.c.rule_set == sa.bindparam("of_rules"), batch.c.batch_id != _OF_BATCH),
        sa.exists().where(rules_in_force.c.rule_set == sa.bindparam("of_rules")),
        sa.exists().where(rule_change.c.rule_set == sa.bindparam("of_rules")),
        sa.exists().where(
            replay.c.state.in_(["running", "paused"]),
            sa.type_coerce(replay.c.parts, sa.Text).contains(sa.bindparam("of_rules")),
        ),
    )
)

_later_change = rule_change.alias("later")

#: Changes of rules before the given time that a later change of the same rule superseded, oldest first.
OLD_RULE_CHANGES = (
    sa.select(rule_change.c.change_id, rule_change.c.rule_set)
    .where(
        rule_change.c.at < _TIME,
        sa.exists().where(
            _later_change.c.rule == rule_change.c.rule, _later_change.c.change_id > rule_change.c.change_id
        ),
    )
    .order_by(rule_change.c.change_id)
    .limit(sa.bindparam("most"))
)

#: Deletes changes of rules.
DROP_RULE_CHANGES = sa.delete(rule_change).where(rule_change.c.change_id.in_(sa.bindparam("ids", expanding=True)))

#: Replays that ended before the given time and have no batch that still has all its records.
OLD_REPLAYS = (
    sa.select(replay.c.replay_id)
    .where(
        replay.c.ended_at < _TIME,
        ~sa.exists().where(replayed.c.replay_id == replay.c.replay_id, _is_kept_whole(replayed.c.batch_id)),
    )
    .limit(sa.bindparam("most"))
)

#: Deletes a replay that has no rows left.
DROP_REPLAY = sa.delete(replay).where(
    replay.c.replay_id == sa.bindparam("of_replay"), ~sa.exists().where(replayed.c.replay_id == replay.c.replay_id)
)

#: Deletes redrives that ended before the given time and whose dead letters no longer exist.
DROP_REDRIVES = sa.delete(redrive).where(
    redrive.c.ended_at < _TIME, ~sa.exists().where(redriven.c.redrive_id == redrive.c.redrive_id)
)

#: The time up to which the store was swept.
SWEPT = sa.select(sweep.c.through).where(sweep.c.name == sa.bindparam("of_sweep"))

#: Records how far the store was swept; the time never moves back.
MOVE_SWEEP = (
    sa.update(sweep).where(sweep.c.name == sa.bindparam("of_sweep"), sweep.c.through < _TIME).values(through=_TIME)
)

#: The planning time of the first batch that was planned at or after the given time.
FIRST_BATCH = (
    sa.select(batch.c.planned_at)
    .where(batch.c.planned_at >= _TIME)
    .order_by(batch.c.planned_at, batch.c.batch_id)
    .limit(1)
)

#: Deletes the row of a batch.
DROP_BATCH = sa.delete(batch).where(batch.c.batch_id == _OF_BATCH)


def _delete_some(table: Any, *where: Any) -> sa.Delete:
    """Return the statement that deletes a bounded number of rows of a table."""
    key = sa.tuple_(*table.primary_key)
    chosen = sa.select(*table.primary_key).where(*where).limit(sa.bindparam("most"))
    return sa.delete(table).where(key.in_(chosen))


def _delete_files(*kinds: str) -> sa.Delete:
    return _delete_some(batch_file, batch_file.c.batch_id == _OF_BATCH, batch_file.c.kind.in_(kinds))


#: The statements, in order, that delete the ledger's rows when a batch loses records, at most `most` rows each.
DROPS: dict[Kept, tuple[sa.Delete, ...]] = {
    "all": (
        _delete_some(pending, pending.c.batch_id == _OF_BATCH),
        _delete_some(deferred_match, deferred_match.c.batch_id == _OF_BATCH),
        _delete_some(delivery_chunk, delivery_chunk.c.batch_id == _OF_BATCH),
        _delete_some(route_try, route_try.c.batch_id == _OF_BATCH),
        _delete_files("delivery", "outcome", "settlement"),
    ),
    "archive": (_delete_files("buffer"),),
    "dead_letters": (_delete_some(redriven, redriven.c.file.in_(_dead_letters)), _delete_files("dead_letter")),
    "manifest": (
        _delete_some(replayed, replayed.c.batch_id == _OF_BATCH),
        _delete_some(batch_range, batch_range.c.batch_id == _OF_BATCH),
    ),
}

#: Deletes a bounded number of a replay's rows.
DROP_REPLAYED = _delete_some(replayed, replayed.c.replay_id == sa.bindparam("of_replay"))


@cache
def select_groups(kept: Kept) -> sa.Select[Any]:
    """Return the query for each runner and bus with a batch at the step `kept`, in order; it reads one row of each."""
    one = one_of_each([batch.c.runner, batch.c.bus], batch.c.kept == word(kept))
    found = sa.select(batch.c.runner, batch.c.bus).where(batch.c.batch_id == one.c.batch_id)
    return found.order_by(batch.c.runner, batch.c.bus)  # batches that took rows come first, because their bus is empty


def select_expired(*, newest_first: bool, behind: bool) -> sa.Select[Any]:
    """Return the query for committed batches of a group planned before the given time; if `behind`, those after another
    one."""
    position = sa.tuple_(batch.c.planned_at, batch.c.batch_id)
    found = sa.select(batch).where(
        batch.c.kept == sa.bindparam("of_kept"),
        batch.c.runner == sa.bindparam("of_runner"),
        batch.c.bus == sa.bindparam("of_bus"),
        batch.c.state == word("committed"),
    )
    if behind:
        last = sa.tuple_(_TIME, _OF_BATCH, types=[UtcTime(), sa.Text()])
        found = found.where(position < last if newest_first else position > last)
    if not (behind and newest_first):  # with two upper bounds SQLite may enter the index at the wrong one
        found = found.where(batch.c.planned_at < sa.bindparam("before", type_=UtcTime))
    order = (
        (batch.c.planned_at.desc(), batch.c.batch_id.desc()) if newest_first else (batch.c.planned_at, batch.c.batch_id)
    )
    return found.order_by(*order).limit(sa.bindparam("most"))


#: The maximum number of rows that one transaction deletes; other writers wait a few milliseconds for it.
ROWS_AT_ONCE = 200


class Retention(Aggregate):
    """Removes old records, in several small transactions, which hardly delay deliveries."""

    def groups(self, kept: Kept) -> list[BatchGroup]:
        """Return the runners and buses with batches at the step `kept`; the cost does not grow with the batches."""
        return [BatchGroup(row.runner, row.bus) for row in self._rows(select_groups(kept))]

    def expired(
        self, kept: Kept, group: BatchGroup, before: datetime, behind: BatchPosition | None = None, *, limit: int = 100
    ) -> list[Batch]:
        """Return at most `limit` of those committed batches of a group that were planned before the given time.

        An index finds exactly these rows. Batches with all records come newest first, because a batch is removed before
        the batch whose rows it took; the others come oldest first. If `behind` is set, only batches after that
        position are returned.
        """
        values = {"of_kept": kept, "of_runner": group.runner, "of_bus": group.bus, "most": limit, "before": before}
        if behind is not None:
            values |= {"at": behind.planned_at, "of_batch": behind.batch_id}
        statement = select_expired(newest_first=kept == "all", behind=behind is not None)
        return [to_batch(row) for row in self._rows(statement, values)]

    def unfinished_removals(self, limit: int = 100) -> list[Batch]:
        """Return at most `limit` batches with records that are no longer kept but not all removed yet, oldest first."""
        return [to_batch(row) for row in self._rows(UNFINISHED_REMOVALS, {"most": limit})]

    def open_requests(self) -> set[str]:
        """Return the ids of the replays and redrives that have not ended."""
        with self._reading() as connection:
            return _open_requests(connection)

    def needs(self, batch: Batch) -> list[Need]:
        """Return why a committed batch must keep records, as far as the ledger's rows show it."""
        of = {"of_batch": batch.batch_id}
        group = of | {"of_runner": batch.runner, "of_bus": batch.bus, "of_kind": batch.kind, "at": batch.planned_at}
        found = []
        with self._reading() as connection:
            if batch.kept == "all":
                if batch.kind == "normal" and batch.bus_committed_at is None:
                    found.append(Need("all", "its offsets are not committed to its bus"))
                if connection.execute(WAITS, of).first() is not None:
                    found.append(Need("all", "it has pending deliveries or deferred matches"))
                if connection.execute(WHOLE_TAKER, of).first() is not None:
                    found.append(Need("all", "a later batch that is kept took some of its rows"))
            if is_kept(batch.kept, "dead_letters") and connection.execute(WHOLE_REDRIVE, of).first():
                found.append(Need("dead_letters", "a later batch that is kept took its dead letters"))
            if connection.execute(NAMED_AS_TAKER, of).first() is not None:
                found.append(Need("manifest", "it took rows of a batch that is kept"))
            if connection.execute(LATER_BATCH, group).first() is None:
                found.append(Need("manifest", "it is the newest batch of its runner"))
            # The batches that a runner keeps have no gap between them, so that an audit can follow its offsets.
            if batch.kind == "normal" and connection.execute(EARLIER_BATCH, group).first() is not None:
                found.append(Need("manifest", "an earlier batch of its runner is kept"))
        return found

    def files_in_use(self) -> set[str]:
        """Return the files that open pending rows and deferred matches name."""
        with self._reading() as connection:
            return {path for row in connection.execute(FILES_IN_USE) for path, *_ in row.files}

    def mark_kept(self, batch: Batch, kept: Kept, known_requests: Collection[str]) -> bool:
        """Mark which records of a committed batch are kept; the caller then removes its other files and rows.

        Returns False, and changes nothing, if the batch has changed since it was read, or if a replay or redrive that
        is not among `known_requests` has begun, because it may need records that would be removed.
        """
        change = {"of_batch": batch.batch_id, "expected": batch.kept, "to": kept}
        with self._writing() as connection:
            connection.execute(TAKE_TURN)  # a replay or redrive that begins now either waits or is visible here
            if not _open_requests(connection) <= set(known_requests):
                return False
            return connection.execute(MARK_KEPT, change).rowcount == 1

    def delete_rows(self, batch: Batch) -> int:
        """Delete the rows of the records that a batch no longer keeps, and record what remains.

        Returns the number of deleted rows. Runs several transactions. Call it after the files are removed. If the batch
        keeps nothing, its own row is deleted last.
        """
        lost = STEPS[STEPS.index(batch.remaining) : STEPS.index(batch.kept)]
        dropped = self._drop_all([each for what in lost for each in DROPS[what]], {"of_batch": batch.batch_id})
        with self._writing() as connection:
            take_size(connection, batch)
            if batch.kept == "nothing":
                connection.execute(DROP_BATCH, {"of_batch": batch.batch_id})
            else:
                change = {"of_batch": batch.batch_id, "expected": batch.remaining, "to": batch.kept}
                connection.execute(MARK_REMAINING, change)
        return dropped

    def is_rule_set_named(self, rule_set: str, but_by: str = "") -> bool:
        """Return whether anything but the batch `but_by` refers to a frozen rule set, such as a batch or a replay."""
        with self._reading() as connection:
            names = {"of_rules": rule_set, "of_batch": but_by}
            return bool(connection.execute(RULE_SET_NAMED, names).scalar())

    def drop_rule_changes(self, before: datetime) -> tuple[int, set[str]]:
        """Delete superseded changes of rules from before the given time; return how many, and their rule sets."""
        count = 0
        rule_sets: set[str] = set()
        while True:
            with self._writing() as connection:
                chosen = {"at": before, "most": ROWS_AT_ONCE}
                rows = connection.execute(OLD_RULE_CHANGES, chosen).all()
                if not rows:
                    return count, rule_sets
                connection.execute(DROP_RULE_CHANGES, {"ids": [row.change_id for row in rows]})
            count += len(rows)
            rule_sets |= {row.rule_set for row in rows}

    def drop_ended_requests(self, before: datetime) -> int:
        """Delete replays and redrives that ended before the given time and are no longer needed; return how many.

        A replay is needed while one of its batches has all its records. A redrive is needed while dead letters that it
        took exist. A call deletes at most 200 replays.
        """
        with self._reading() as connection:
            old = connection.execute(OLD_REPLAYS, {"at": before, "most": ROWS_AT_ONCE}).scalars().all()
        dropped = 0
        for replay_id in old:
            self._drop_all([DROP_REPLAYED], {"of_replay": replay_id})
            dropped += self._change(DROP_REPLAY, {"of_replay": replay_id})
        return dropped + self._change(DROP_REDRIVES, {"at": before})

    def get_swept_through(self, name: SweepName) -> datetime | None:
        """Return the planning time up to which a sweep has handled the files of batches; None if it has not begun."""
        with self._reading() as connection:
            return connection.execute(SWEPT, {"of_sweep": name}).scalar()

    def move_sweep(self, name: SweepName, through: datetime) -> None:
        """Record that the files of batches planned before the given time were swept; the time never moves back."""
        with self._writing() as connection:
            connection.execute(insert_or_skip(sweep), {"name": name, "through": through})
            connection.execute(MOVE_SWEEP, {"of_sweep": name, "at": through})

    def begin_compaction(self, through: datetime) -> bool:
        """Record that a compaction of files of batches planned before `through` begins, unless an erasure has not
        ended.

        Returns False, and records nothing, in that case: it could copy data that is being erased.
        """
        return self._begin("compacting", through, unless="erasing", ended="erased")

    def begin_erasure(self, at: datetime) -> bool:
        """Record that an erasure begins, unless a compaction has begun and not ended; then return False."""
        return self._begin("erasing", at, unless="compacting", ended="compacted")

    def _begin(self, name: SweepName, through: datetime, *, unless: SweepName, ended: SweepName) -> bool:
        with self._writing() as connection:
            connection.execute(TAKE_TURN)
            other, done = (connection.execute(SWEPT, {"of_sweep": each}).scalar() for each in (unless, ended))
            if other is not None and (done is None or done < other):
                return False
            connection.execute(insert_or_skip(sweep), {"name": name, "through": through})
            connection.execute(MOVE_SWEEP, {"of_sweep": name, "at": through})
            return True

    def first_batch_at(self, since: datetime) -> datetime | None:
        """Return the planning time of the first batch that was planned at or after `since`, or None."""
        with self._reading() as connection:
            return connection.execute(FIRST_BATCH, {"at": since}).scalar()

    def _drop_all(self, deletes: Sequence[sa.Delete], names: Mapping[str, str]) -> int:
        """Run each statement until it finds no more rows, in small transactions; return the number of deleted rows."""
        dropped = 0
        remaining = list(deletes)
        while remaining:
            with self._writing() as connection:
                most = ROWS_AT_ONCE
                while remaining and most:
                    count = connection.execute(remaining[0], {**names, "most": most}).rowcount
                    dropped, most = dropped + count, most - count
                    if most:
                        remaining.pop(0)
        return dropped


def _open_requests(connection: sa.Connection) -> set[str]:
    return set(connection.execute(OPEN_REQUESTS).scalars())
