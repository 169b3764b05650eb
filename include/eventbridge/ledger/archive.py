"""Finds the archive files of batches in the ledger, and maintains the index of event ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import sqlalchemy as sa

from eventbridge.ledger.batches import UNINDEXED, batch, to_batch
from eventbridge.ledger.database import Aggregate, LostRaceError
from eventbridge.ledger.definitions import UtcTime, metadata, period_condition, word
from eventbridge.ledger.files import batch_file
from eventbridge.model.batch import Batch
from eventbridge.model.file_detail import LandedRange, decode_detail
from eventbridge.model.redelivery import ArchiveFile
from eventbridge.model.storage import STEPS, ArchivedBatches, IndexedFile, IndexFile, Kept, is_kept

#: Each file names the archive files of batches that were planned on `day` (its beginning in UTC).
event_index = sa.Table(
    "event_index",
    metadata,
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("day", UtcTime, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
)

_OF_TIME = period_condition(batch.c.planned_at)
_ARCHIVED: sa.ColumnElement[bool] = batch.c.kept.in_([word("all"), word("archive")])

#: The archive files of batches, each with its landed range as text.
ARCHIVE_OF = (
    sa.select(batch_file.c.batch_id, batch_file.c.path, sa.type_coerce(batch_file.c.detail, sa.Text).label("detail"))
    .where(
        batch_file.c.batch_id.in_(sa.bindparam("ids", expanding=True)),
        batch_file.c.kind == word("buffer"),
        batch_file.c.path.is_not(None),
    )
    .order_by(batch_file.c.batch_id, batch_file.c.key)
)

#: A normal batch of a period whose archive exists.
ONE_ARCHIVED = sa.select(batch.c.batch_id).where(_OF_TIME, batch.c.kind == word("normal"), _ARCHIVED).limit(1)

#: A summary of the normal batches that were planned within a period.
ARCHIVED_BATCHES = sa.select(
    sa.func.count().label("batches"),
    sa.func.coalesce(sa.func.sum(sa.case((_ARCHIVED, 0), else_=1)), 0).label("pruned"),
    sa.type_coerce(sa.func.min(batch.c.planned_at), UtcTime).label("oldest"),
    sa.type_coerce(sa.func.max(batch.c.planned_at), UtcTime).label("newest"),
).where(_OF_TIME, batch.c.kind == word("normal"))

#: The same summary for one bus.
ARCHIVED_BATCHES_OF_BUS = ARCHIVED_BATCHES.where(batch.c.bus == sa.bindparam("of_bus"))

#: The condition for committed normal batches of a bus that were planned in a period and committed before the given
#: time.
_ARCHIVED_OF_BUS = (
    (batch.c.kind == word("normal"))
    & (batch.c.bus == sa.bindparam("of_bus"))
    & _OF_TIME
    & (batch.c.committed_at < sa.bindparam("before", type_=UtcTime))
    & batch.c.kept.in_(["all", "archive"])
)

#: The runners that archived events of a bus within a period, with the rule sets to which their batches are pinned.
ARCHIVE_RULE_SETS = (
    sa.select(batch.c.runner, batch.c.rule_set)
    .where(_ARCHIVED_OF_BUS)
    .distinct()
    .order_by(batch.c.runner, batch.c.rule_set)
)


def select_files(runner: str | None, limit: int | None) -> sa.Select[Any]:
    """Return the query for archive files of a bus in order of time; if `runner` is None, those of all its runners."""
    found = (
        sa.select(
            batch.c.batch_id,
            batch.c.runner,
            batch.c.rule_set,
            batch.c.planned_at,
            batch_file.c.key,
            batch_file.c.path,
            batch_file.c.rows,
            sa.type_coerce(batch_file.c.detail, sa.Text).label("detail"),
        )
        .select_from(batch)
        .join(batch_file, (batch_file.c.batch_id == batch.c.batch_id) & (batch_file.c.kind == word("buffer")))
        .where(_ARCHIVED_OF_BUS, batch_file.c.path.is_not(None), batch_file.c.rows > 0)
        .order_by(batch.c.planned_at, batch.c.batch_id, batch_file.c.key)
        .limit(limit)
    )
    return found if runner is None else found.where(batch.c.runner == runner)


_SOME_FILES = (
    sa.select(batch.c.runner, batch_file.c.rows)
    .select_from(batch)
    .join(batch_file, (batch_file.c.batch_id == batch.c.batch_id) & (batch_file.c.kind == word("buffer")))
    .where(_ARCHIVED_OF_BUS, batch_file.c.path.is_not(None), batch_file.c.rows > 0)
    .limit(sa.bindparam("most"))
    .subquery()
)

#: The number of archive files of a bus and period, at most `most`, and of their events, by runner.
ARCHIVED_ROWS = sa.select(
    sa.func.count().label("files"), sa.func.coalesce(sa.func.sum(_SOME_FILES.c.rows), 0).label("rows")
).group_by(_SOME_FILES.c.runner)

#: The planning time of the newest normal batch of a bus and period whose `kept` is not among the values `enough`.
PRUNED_ARCHIVE = (
    sa.select(batch.c.planned_at)
    .where(
        _OF_TIME,
        batch.c.kind == "normal",
        batch.c.bus == sa.bindparam("of_bus"),
        batch.c.kept.not_in(sa.bindparam("enough", expanding=True)),
    )
    .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    .limit(1)
)

#: The files of the index for the days within a period.
INDEX_FILES = (
    sa.select(event_index).where(period_condition(event_index.c.day)).order_by(event_index.c.day, event_index.c.path)
)

#: Adds a file of the index.
ADD_INDEX_FILE = sa.insert(event_index)

#: Deletes the records of files of the index.
DROP_INDEX_FILES = sa.delete(event_index).where(event_index.c.path.in_(sa.bindparam("paths", expanding=True)))

#: Deletes the records of a day's files.
DROP_INDEX_OF_DAY = sa.delete(event_index).where(event_index.c.day == sa.bindparam("of_day", type_=UtcTime))

#: Marks batches as in the index (compare and set).
MARK_INDEXED = (
    sa.update(batch)
    .where(batch.c.batch_id.in_(sa.bindparam("ids", expanding=True)), batch.c.in_index == "no")
    .values(in_index="yes")
)

#: Marks the batches of a period as not in the index.
MARK_UNINDEXED = sa.update(batch).where(_OF_TIME, batch.c.in_index == "yes").values(in_index="no")


@cache
def select_unindexed(*, committed: bool, limited: bool) -> sa.Select[Any]:
    """Return the query for those normal batches of a period that have their archive and are not in the index, oldest
    first.

    If `committed`, it selects committed batches only. If `limited`, it selects at most as many as the `most` parameter.
    """
    found = sa.select(batch).where(UNINDEXED, _OF_TIME).order_by(batch.c.planned_at, batch.c.batch_id)
    if committed:
        found = found.where(batch.c.state == word("committed"))
    return found.limit(sa.bindparam("most")) if limited else found


_EVER = {"since": datetime(1970, 1, 1, tzinfo=UTC), "until": datetime(9999, 1, 1, tzinfo=UTC)}
_IDS_AT_ONCE = 500


class Archive(Aggregate):
    """The landed files of batches."""

    def rule_sets(self, bus: str, since: datetime, until: datetime, before: datetime) -> list[tuple[str, str]]:
        """Return the runners that archived events of a bus, with the rule sets of their batches; see `files`."""
        times = {"of_bus": bus, "since": since, "until": until, "before": before}
        return [(row.runner, row.rule_set) for row in self._rows(ARCHIVE_RULE_SETS, times)]

    def files(
        self,
        bus: str,
        since: datetime,
        until: datetime,
        before: datetime,
        *,
        runner: str | None = None,
        limit: int | None = None,
    ) -> list[ArchiveFile]:
        """Return the archive files of batches planned from `since` (included) to `until` (excluded), oldest first.

        Only batches committed before `before` count, so that later commits do not change the result. If `runner` is
        None, batches of all runners count.
        """
        times = {"of_bus": bus, "since": since, "until": until, "before": before}
        return [_to_archive_file(row) for row in self._rows(select_files(runner, limit), times)]

    def count_rows(self, bus: str, since: datetime, until: datetime, limit: int) -> list[tuple[int, int]]:
        """Return the number of archive files and of their events for each runner of a bus, of at most `limit` files.

        Files are those of batches planned from `since` (included) to `until` (excluded).
        """
        times = {"of_bus": bus, "since": since, "until": until, "before": _EVER["until"], "most": limit}
        return [(row.files, int(row.rows)) for row in self._rows(ARCHIVED_ROWS, times)]

    def files_of(self, batch_ids: Sequence[str]) -> list[tuple[IndexedFile, bool]]:
        """Return the archive files of batches, each with True if it contains malformed messages."""
        rows = self._rows(ARCHIVE_OF, {"ids": list(batch_ids)})
        return [(IndexedFile(row.batch_id, row.path), _has_malformed(row.detail)) for row in rows]

    def has_any(self, since: datetime, until: datetime) -> bool:
        """Return whether any normal batch planned within a period still has its archive."""
        return self._first(ONE_ARCHIVED, {"since": since, "until": until}) is not None

    def summary(self, since: datetime, until: datetime, bus: str = "") -> ArchivedBatches:
        """Return a summary of the normal batches planned within a period, of one bus or ("") of all."""
        statement = ARCHIVED_BATCHES_OF_BUS if bus else ARCHIVED_BATCHES
        with self._reading() as connection:
            row = connection.execute(
                statement, {"since": since, "until": until} | ({"of_bus": bus} if bus else {})
            ).one()
        return ArchivedBatches(row.batches, int(row.pruned), row.oldest, row.newest)

    def pruned_at(self, bus: str, since: datetime, until: datetime, what: Kept) -> datetime | None:
        """Return the planning time of the newest normal batch of a bus and period that no longer has `what`.

        Returns None if each of these batches still has it.
        """
        enough = [each for each in STEPS if is_kept(each, what)]
        times = {"of_bus": bus, "since": since, "until": until, "enough": enough}
        with self._reading() as connection:
            return connection.execute(PRUNED_ARCHIVE, times).scalar()


class EventIndex(Aggregate):
    """The index of event ids: its files, and which batches are in it."""

    def files(self, since: datetime | None = None, until: datetime | None = None) -> list[IndexFile]:
        """Return the files of the index for days that begin within a period, or for all days."""
        times = {"since": since or _EVER["since"], "until": until or _EVER["until"]}
        return [IndexFile(**row._mapping) for row in self._rows(INDEX_FILES, times)]

    def unindexed(self, since: datetime, until: datetime) -> list[Batch]:
        """Return the normal batches planned within a period that have their archive and are not in the index."""
        times = {"since": since, "until": until}
        found = self._rows(select_unindexed(committed=False, limited=False), times)
        return [to_batch(row) for row in found]

    def batches_to_index(self, limit: int) -> list[Batch]:
        """Return the oldest `limit` committed normal batches that have their archive and are not in the index."""
        found = self._rows(select_unindexed(committed=True, limited=True), _EVER | {"most": limit})
        return [to_batch(row) for row in found]

    def publish(self, file: IndexFile, batch_ids: Collection[str], instead_of: Sequence[IndexFile]) -> bool:
        """Add a file, record that batches are in it, and delete the records of the files that it replaces.

        All of this happens in one transaction. Returns False, and changes nothing, if one of the batches is already in
        the index, or if one of the replaced files is no longer recorded.
        """
        ids = sorted(batch_ids)
        try:
            with self._writing() as connection:
                for start in range(0, len(ids), _IDS_AT_ONCE):
                    some = ids[start : start + _IDS_AT_ONCE]
                    if connection.execute(MARK_INDEXED, {"ids": some}).rowcount != len(some):
                        raise LostRaceError
                if instead_of:
                    paths = [each.path for each in instead_of]
                    if connection.execute(DROP_INDEX_FILES, {"paths": paths}).rowcount != len(paths):
                        raise LostRaceError
                connection.execute(ADD_INDEX_FILE, vars(file))
        except LostRaceError:
            return False
        return True

    def drop_day(self, day: datetime) -> None:
        """Delete the records of a day's index files, once the archive of that day has been removed."""
        self._change(DROP_INDEX_OF_DAY, {"of_day": day})

    def forget_day(self, day: datetime) -> None:
        """Delete the index records of a day, so that searches read its archive files until these are indexed again."""
        with self._writing() as connection:
            connection.execute(DROP_INDEX_OF_DAY, {"of_day": day})
            connection.execute(MARK_UNINDEXED, {"since": day, "until": day + timedelta(days=1)})


def _has_malformed(detail: str) -> bool:
    landed = decode_detail(detail)
    return not isinstance(landed, LandedRange) or landed.malformed > 0


def _to_archive_file(row: sa.Row[Any]) -> ArchiveFile:
    landed = decode_detail(row.detail)
    assert isinstance(landed, LandedRange), "a normal batch's buffer files are landed"
    return ArchiveFile(
        path=row.path,
        rows=row.rows,
        batch_id=row.batch_id,
        runner=row.runner,
        rule_set=row.rule_set,
        planned_at=row.planned_at,
        partition=landed.partition,
        start=landed.start,
        end=landed.end,
    )
