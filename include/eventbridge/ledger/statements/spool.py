"""Statements about the spool."""

from __future__ import annotations

from sqlalchemy import Select, bindparam, delete, func, or_, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.tables import spooled

_OF_TOPIC = (spooled.c.bus == bindparam("of_bus"), spooled.c.topic == bindparam("of_topic"))
_AT = bindparam("at", type_=UtcTime)


def files(*, limit: int | None = None) -> Select[tuple[object, ...]]:
    """Return the query for the files of a topic that hold messages of offsets `first` to `last` (excluded)."""
    within = (spooled.c.end > bindparam("first"), spooled.c.start < bindparam("last"))
    return select(spooled).where(*_OF_TOPIC, *within).order_by(spooled.c.start).limit(limit)


#: The offset that a topic's next message gets, NULL if it has none.
END = select(func.max(spooled.c.end)).where(*_OF_TOPIC)

#: The first offset that a topic's spool holds, NULL if none.
EARLIEST = select(func.min(spooled.c.start)).where(*_OF_TOPIC)

#: The first offset that was spooled at or after a time, NULL if none.
OFFSET_AT = select(func.min(spooled.c.start)).where(*_OF_TOPIC, spooled.c.spooled_at >= _AT)

#: The files whose messages a queue may hand out again.
MAY_COME_AGAIN = select(spooled).where(*_OF_TOPIC, or_(spooled.c.acknowledged.is_(False), spooled.c.spooled_at >= _AT))

#: Records a file, unless another one has its place.
RECORD = insert_or_skip(spooled)

#: Notes that the messages of a file were acknowledged.
ACKNOWLEDGED = update(spooled).where(*_OF_TOPIC, spooled.c.start == bindparam("first")).values(acknowledged=True)

#: Counts messages that came again.
CAME_AGAIN = (
    update(spooled)
    .where(*_OF_TOPIC, spooled.c.end == bindparam("last"))
    .values(again=spooled.c.again + bindparam("more"))
)

#: The files that hold nothing from an offset on, and were spooled before a time.
TAKEN = (
    select(spooled)
    .where(*_OF_TOPIC, spooled.c.end <= bindparam("last"), spooled.c.spooled_at < _AT)
    .order_by(spooled.c.start)
)

#: Forgets the files below an offset.
DROP = delete(spooled).where(*_OF_TOPIC, spooled.c.end <= bindparam("last"))
