"""The inbox in the ledger: the files with messages that queues handed out, and their offsets."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    PrimaryKeyConstraint,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    func,
    or_,
    select,
    update,
)

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata
from eventbridge.model.storage import InboxFile

#: Messages `start` (included) to `end` (excluded) of a topic; `again`: how many received since were repeats.
#: Not `acknowledged`: the queue may hand them out again.
inbox_file = Table(
    "inbox_file",
    metadata,
    Column("bus", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("path", Text, nullable=False),
    Column("again", BigInteger, nullable=False),
    Column("stored_at", UtcTime, nullable=False),
    Column("acknowledged", Boolean, nullable=False),
    PrimaryKeyConstraint("bus", "topic", "start"),
)

_OF_TOPIC = (inbox_file.c.bus == bindparam("of_bus"), inbox_file.c.topic == bindparam("of_topic"))
_AT = bindparam("at", type_=UtcTime)


def select_files(*, limit: int | None = None) -> Select[tuple[object, ...]]:
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


class Inbox(Aggregate):
    """Files with messages that queues handed out."""

    def ends(self, bus: str, topic: str) -> tuple[int, int]:
        """Return the first offset in a topic's inbox, and the offset of its next message."""
        of = {"of_bus": bus, "of_topic": topic}
        with self._reading() as connection:
            end = connection.execute(END, of).scalar() or 0
            earliest = connection.execute(EARLIEST, of).scalar()
            return end if earliest is None else earliest, end

    def offset_at(self, bus: str, topic: str, at: datetime) -> int | None:
        """Return the first offset that was stored at or after a time, None if none was."""
        with self._reading() as connection:
            found: int | None = connection.execute(OFFSET_AT, {"of_bus": bus, "of_topic": topic, "at": at}).scalar()
            return found

    def files(self, bus: str, topic: str, first: int, last: int) -> list[InboxFile]:
        """Return the files that hold messages at offsets `first` (included) to `last` (excluded), in order."""
        of = {"of_bus": bus, "of_topic": topic, "first": first, "last": last}
        with self._reading() as connection:
            return [
                InboxFile(row.bus, row.topic, row.start, row.end, row.path, row.again, row.stored_at, row.acknowledged)
                for row in connection.execute(select_files(), of)
            ]

    def files_to_expect_again(self, bus: str, topic: str, since: datetime) -> list[InboxFile]:
        """Return the files whose messages were not acknowledged, or were stored at or after a time."""
        of = {"of_bus": bus, "of_topic": topic, "at": since}
        with self._reading() as connection:
            return [
                InboxFile(row.bus, row.topic, row.start, row.end, row.path, row.again, row.stored_at, row.acknowledged)
                for row in connection.execute(MAY_COME_AGAIN, of)
            ]

    def record(self, bus: str, topic: str, path: str, count: int, *, start: int) -> InboxFile | None:
        """Record a file of `count` messages from offset `start` on; return None if its topic no longer ends there.

        In that case another process was faster, and may have recorded the same messages.
        """
        file = InboxFile(bus, topic, start, start + count, path, 0, self._now(), acknowledged=False)
        with self._writing() as connection:
            end = connection.execute(END, {"of_bus": bus, "of_topic": topic}).scalar() or 0
            if end != start or connection.execute(RECORD, vars(file)).rowcount != 1:
                return None
            return file

    def mark_acknowledged(self, file: InboxFile) -> None:
        """Record that the queue has the acknowledgement of a file's messages and does not hand them out again."""
        with self._writing() as connection:
            connection.execute(ACKNOWLEDGED, {"of_bus": file.bus, "of_topic": file.topic, "first": file.start})

    def count_repeats(self, bus: str, topic: str, count: int) -> None:
        """Add messages that a queue handed out again to the count of the newest file of their topic."""
        of = {"of_bus": bus, "of_topic": topic}
        with self._writing() as connection:
            last = connection.execute(END, of).scalar()
            connection.execute(CAME_AGAIN, {**of, "last": last, "more": count})

    def files_below(self, bus: str, topic: str, offset: int, before: datetime) -> list[InboxFile]:
        """Return the files that end at or before `offset` and were stored before a time, except the newest.

        The newest file of a topic stays, because the next one begins at its end.
        """
        of = {"of_bus": bus, "of_topic": topic}
        with self._reading() as connection:
            end = connection.execute(END, of).scalar()
            rows = connection.execute(TAKEN, {**of, "last": offset, "at": before})
            return [
                file
                for file in (
                    InboxFile(
                        row.bus, row.topic, row.start, row.end, row.path, row.again, row.stored_at, row.acknowledged
                    )
                    for row in rows
                )
                if file.end != end
            ]

    def drop(self, bus: str, topic: str, offset: int) -> None:
        """Delete the records of a topic's files that end at or before `offset`."""
        with self._writing() as connection:
            connection.execute(DROP, {"of_bus": bus, "of_topic": topic, "last": offset})
