"""Records in the ledger the files of the inbox, which hold messages from queues, and their offsets."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata
from eventbridge.model.storage import InboxFile

#: Each file holds messages `start` (included) to `end` (excluded) of a topic. `again` counts the repeated messages of
#: the topic that arrived while the file was its newest. Until `acknowledged` is true, the queue may hand out the file's
#: messages again.
inbox_file = sa.Table(
    "inbox_file",
    metadata,
    sa.Column("bus", sa.Text, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("end", sa.BigInteger, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("again", sa.BigInteger, nullable=False),
    sa.Column("stored_at", UtcTime, nullable=False),
    sa.Column("acknowledged", sa.Boolean, nullable=False),
    sa.PrimaryKeyConstraint("bus", "topic", "start"),
)

_OF_TOPIC = (inbox_file.c.bus == sa.bindparam("of_bus"), inbox_file.c.topic == sa.bindparam("of_topic"))
_AT = sa.bindparam("at", type_=UtcTime)


def select_files(*, limit: int | None = None) -> sa.Select[tuple[object, ...]]:
    """Return the query for the files of a topic that hold messages at offsets `first` to `last` (excluded)."""
    within = (inbox_file.c.end > sa.bindparam("first"), inbox_file.c.start < sa.bindparam("last"))
    return sa.select(inbox_file).where(*_OF_TOPIC, *within).order_by(inbox_file.c.start).limit(limit)


#: The offset that a topic's next message gets, NULL if the topic has no file.
END = sa.select(sa.func.max(inbox_file.c.end)).where(*_OF_TOPIC)

#: The first offset that was stored at or after the given time, NULL if none was.
OFFSET_AT = sa.select(sa.func.min(inbox_file.c.start)).where(*_OF_TOPIC, inbox_file.c.stored_at >= _AT)

#: The files whose messages a queue may hand out again.
MAY_COME_AGAIN = sa.select(inbox_file).where(
    *_OF_TOPIC, sa.or_(inbox_file.c.acknowledged.is_(False), inbox_file.c.stored_at >= _AT)
)

#: Marks the messages of a file as acknowledged.
ACKNOWLEDGED = (
    sa.update(inbox_file).where(*_OF_TOPIC, inbox_file.c.start == sa.bindparam("first")).values(acknowledged=True)
)

#: Adds messages that a queue handed out again to the count of their topic's newest file.
CAME_AGAIN = (
    sa.update(inbox_file)
    .where(*_OF_TOPIC, inbox_file.c.end == sa.bindparam("last"))
    .values(again=inbox_file.c.again + sa.bindparam("more"))
)

#: The files that end at or before an offset and were stored before the given time.
TAKEN = (
    sa.select(inbox_file)
    .where(*_OF_TOPIC, inbox_file.c.end <= sa.bindparam("last"), inbox_file.c.stored_at < _AT)
    .order_by(inbox_file.c.start)
)

#: Deletes the records of the files that end at or before an offset.
DROP = sa.delete(inbox_file).where(*_OF_TOPIC, inbox_file.c.end <= sa.bindparam("last"))


class Inbox(Aggregate):
    """Files with messages that queues handed out."""

    def ends(self, bus: str, topic: str) -> tuple[int, int]:
        """Return the first offset in a topic's inbox, and the offset of its next message."""
        of = {"of_bus": bus, "of_topic": topic}
        with self._reading() as connection:
            end = connection.execute(END, of).scalar() or 0
            earliest = connection.execute(sa.select(sa.func.min(inbox_file.c.start)).where(*_OF_TOPIC), of).scalar()
            return end if earliest is None else earliest, end

    def offset_at(self, bus: str, topic: str, at: datetime) -> int | None:
        """Return the first offset that was stored at or after the given time, or None if none was."""
        with self._reading() as connection:
            found: int | None = connection.execute(OFFSET_AT, {"of_bus": bus, "of_topic": topic, "at": at}).scalar()
            return found

    def files(self, bus: str, topic: str, first: int, last: int) -> list[InboxFile]:
        """Return the files that hold messages at offsets `first` (included) to `last` (excluded), in order."""
        of = {"of_bus": bus, "of_topic": topic, "first": first, "last": last}
        return [InboxFile(**row._mapping) for row in self._rows(select_files(), of)]

    def files_to_expect_again(self, bus: str, topic: str, since: datetime) -> list[InboxFile]:
        """Return the files whose messages were not acknowledged, or were stored at or after the given time."""
        of = {"of_bus": bus, "of_topic": topic, "at": since}
        return [InboxFile(**row._mapping) for row in self._rows(MAY_COME_AGAIN, of)]

    def record(self, bus: str, topic: str, path: str, count: int, *, start: int) -> InboxFile | None:
        """Record a file of `count` messages, from offset `start`; return None if its topic no longer ends at `start`.

        In that case another process was faster, and may have recorded the same messages.
        """
        file = InboxFile(bus, topic, start, start + count, path, 0, self._now(), acknowledged=False)
        with self._writing() as connection:
            end = connection.execute(END, {"of_bus": bus, "of_topic": topic}).scalar() or 0
            if end != start or connection.execute(insert_or_skip(inbox_file), vars(file)).rowcount != 1:
                return None
            return file

    def mark_acknowledged(self, file: InboxFile) -> None:
        """Record that the queue has the acknowledgement of a file's messages and does not hand them out again."""
        self._change(ACKNOWLEDGED, {"of_bus": file.bus, "of_topic": file.topic, "first": file.start})

    def count_repeats(self, bus: str, topic: str, count: int) -> None:
        """Add `count` messages that a queue handed out again to the count of their topic's newest file."""
        of: dict[str, object] = {"of_bus": bus, "of_topic": topic}
        with self._writing() as connection:
            last = connection.execute(END, of).scalar()
            connection.execute(CAME_AGAIN, of | {"last": last, "more": count})

    def files_below(self, bus: str, topic: str, offset: int, before: datetime) -> list[InboxFile]:
        """Return the files that end at or before `offset` and were stored before the given time, except the newest.

        The newest file of a topic must stay, because the next file begins at its end.
        """
        of: dict[str, object] = {"of_bus": bus, "of_topic": topic}
        with self._reading() as connection:
            end = connection.execute(END, of).scalar()
            files = [
                InboxFile(**row._mapping) for row in connection.execute(TAKEN, of | {"last": offset, "at": before})
            ]
        return [file for file in files if file.end != end]

    def drop(self, bus: str, topic: str, offset: int) -> None:
        """Delete the records of a topic's files that end at or before `offset`."""
        self._change(DROP, {"of_bus": bus, "of_topic": topic, "last": offset})
