"""Statements about the inbox."""

from __future__ import annotations

from sqlalchemy import Select, bindparam, delete, func, or_, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import inbox_file

_OF_TOPIC = (inbox_file.c.bus == bindparam("of_bus"), inbox_file.c.topic == bindparam("of_topic"))
_AT = bindparam("at", type_=UtcTime)


def files(*, limit: int | None = None) -> Select[tuple[object, ...]]:
    """Return the query for the files of a topic that hold messages of offsets `first` to `last` (excluded)."""
    within = (inbox_file.c.end > bindparam("first"), inbox_file.c.start < bindparam("last"))
    return select(inbox_file).where(*_OF_TOPIC, *within).order_by(inbox_file.c.start).limit(limit)


#: The offset that a topic's next message gets, NULL if it has none.
END = select(func.max(inbox_file.c.end)).where(*_OF_TOPIC)

#: The first offset that a topic's inbox holds, NULL if none.
EARLIEST = select(func.min(inbox_file.c.start)).where(*_OF_TOPIC)

#: The first offset that was stored at or after a time, NULL if none.
OFFSET_AT = select(func.min(inbox_file.c.start)).where(*_OF_TOPIC, inbox_file.c.stored_at >= _AT)

#: The files whose messages a queue may hand out again.
MAY_COME_AGAIN = select(inbox_file).where(
    *_OF_TOPIC, or_(inbox_file.c.acknowledged.is_(False), inbox_file.c.stored_at >= _AT)
)

#: Records a file, unless another one has its place.
RECORD = insert_or_skip(inbox_file)

#: Marks the messages of a file as acknowledged.
ACKNOWLEDGED = update(inbox_file).where(*_OF_TOPIC, inbox_file.c.start == bindparam("first")).values(acknowledged=True)

#: Counts messages that a queue handed out again.
CAME_AGAIN = (
    update(inbox_file)
    .where(*_OF_TOPIC, inbox_file.c.end == bindparam("last"))
    .values(again=inbox_file.c.again + bindparam("more"))
)

#: The files that end at or before an offset and were stored before a time.
TAKEN = (
    select(inbox_file)
    .where(*_OF_TOPIC, inbox_file.c.end <= bindparam("last"), inbox_file.c.stored_at < _AT)
    .order_by(inbox_file.c.start)
)

#: Deletes the records of the files below an offset.
DROP = delete(inbox_file).where(*_OF_TOPIC, inbox_file.c.end <= bindparam("last"))
