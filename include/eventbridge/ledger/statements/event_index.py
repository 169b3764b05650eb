"""Statements about the index of event ids."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, bindparam, case, delete, func, insert, select, type_coerce, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import word
from eventbridge.ledger.tables import UNINDEXED, batch, batch_file, event_index

_SINCE = bindparam("since", type_=UtcTime)
_UNTIL = bindparam("until", type_=UtcTime)
_OF_TIME: ColumnElement[bool] = (batch.c.planned_at >= _SINCE) & (batch.c.planned_at < _UNTIL)
_ARCHIVED: ColumnElement[bool] = batch.c.kept.in_([word("all"), word("archive")])

#: The files of the index, of days within a period.
INDEX_FILES = (
    select(event_index)
    .where(event_index.c.day >= _SINCE, event_index.c.day < _UNTIL)
    .order_by(event_index.c.day, event_index.c.path)
)

#: The archive files of batches, each with its landed range as text.
ARCHIVE_OF = (
    select(batch_file.c.batch_id, batch_file.c.path, type_coerce(batch_file.c.detail, Text).label("detail"))
    .where(
        batch_file.c.batch_id.in_(bindparam("ids", expanding=True)),
        batch_file.c.kind == word("buffer"),
        batch_file.c.path.is_not(None),
    )
    .order_by(batch_file.c.batch_id, batch_file.c.key)
)

#: Adds a file.
ADD_INDEX_FILE = insert(event_index)

#: Deletes the records of files.
DROP_INDEX_FILES = delete(event_index).where(event_index.c.path.in_(bindparam("paths", expanding=True)))

#: Deletes the records of the files of a day.
DROP_INDEX_OF_DAY = delete(event_index).where(event_index.c.day == bindparam("of_day", type_=UtcTime))

#: Marks batches as in the index: compare and set.
MARK_INDEXED = (
    update(batch)
    .where(batch.c.batch_id.in_(bindparam("ids", expanding=True)), batch.c.in_index == "no")
    .values(in_index="yes")
)

#: Marks the batches of a period as not in the index.
MARK_UNINDEXED = update(batch).where(_OF_TIME, batch.c.in_index == "yes").values(in_index="no")

#: A batch of a period whose archive exists.
ONE_ARCHIVED = select(batch.c.batch_id).where(_OF_TIME, batch.c.kind == word("normal"), _ARCHIVED).limit(1)

#: A summary of the normal batches of a period.
ARCHIVED_BATCHES = select(
    func.count().label("batches"),
    func.coalesce(func.sum(case((_ARCHIVED, 0), else_=1)), 0).label("pruned"),
    type_coerce(func.min(batch.c.planned_at), UtcTime).label("oldest"),
    type_coerce(func.max(batch.c.planned_at), UtcTime).label("newest"),
).where(_OF_TIME, batch.c.kind == word("normal"))

#: The same of one bus.
ARCHIVED_BATCHES_OF_BUS = ARCHIVED_BATCHES.where(batch.c.bus == bindparam("of_bus"))


@cache
def unindexed(*, committed: bool, limited: bool) -> Select[Any]:
    """Return the query for batches of a period that are not in the index, oldest first.

    `committed`: only those that are committed and have their archive; `limited`: at most `most`.
    """
    found = select(batch).where(UNINDEXED, _OF_TIME).order_by(batch.c.planned_at, batch.c.batch_id)
    if committed:
        found = found.where(batch.c.state == word("committed"))
    return found.limit(bindparam("most")) if limited else found
