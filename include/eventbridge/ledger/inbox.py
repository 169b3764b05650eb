"""The inbox in the ledger: the files with messages that queues handed out, and their offsets."""

from __future__ import annotations

from datetime import datetime

from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import inbox as statements
from eventbridge.model.storage import InboxFile


class Inbox(Database):
    """The part of the ledger about the inbox."""

    def inbox_ends(self, bus: str, topic: str) -> tuple[int, int]:
        """Return the first offset in a topic's inbox, and the offset of its next message."""
        of = {"of_bus": bus, "of_topic": topic}
        with self._reading() as connection:
            end = connection.execute(statements.END, of).scalar() or 0
            earliest = connection.execute(statements.EARLIEST, of).scalar()
            return end if earliest is None else earliest, end

    def inbox_offset_at(self, bus: str, topic: str, at: datetime) -> int | None:
        """Return the first offset that was stored at or after a time, None if none was."""
        with self._reading() as connection:
            found: int | None = connection.execute(
                statements.OFFSET_AT, {"of_bus": bus, "of_topic": topic, "at": at}
            ).scalar()
            return found

    def inbox_files(self, bus: str, topic: str, first: int, last: int) -> list[InboxFile]:
        """Return the files that hold messages at offsets `first` (included) to `last` (excluded), in order."""
        of = {"of_bus": bus, "of_topic": topic, "first": first, "last": last}
        with self._reading() as connection:
            return [
                InboxFile(row.bus, row.topic, row.start, row.end, row.path, row.again, row.stored_at, row.acknowledged)
                for row in connection.execute(statements.files(), of)
            ]

    def inbox_files_that_may_come_again(self, bus: str, topic: str, since: datetime) -> list[InboxFile]:
        """Return the files whose messages were not acknowledged, or were stored at or after a time."""
        of = {"of_bus": bus, "of_topic": topic, "at": since}
        with self._reading() as connection:
            return [
                InboxFile(row.bus, row.topic, row.start, row.end, row.path, row.again, row.stored_at, row.acknowledged)
                for row in connection.execute(statements.MAY_COME_AGAIN, of)
            ]

    def record_inbox_file(self, bus: str, topic: str, path: str, count: int, *, start: int) -> InboxFile | None:
        """Record a file of `count` messages from offset `start` on; return None if its topic no longer ends there.

        In that case another process was faster, and may have recorded the same messages.
        """
        file = InboxFile(bus, topic, start, start + count, path, 0, self.now(), acknowledged=False)
        with self._writing() as connection:
            end = connection.execute(statements.END, {"of_bus": bus, "of_topic": topic}).scalar() or 0
            if end != start or connection.execute(statements.RECORD, vars(file)).rowcount != 1:
                return None
            return file

    def mark_acknowledged(self, file: InboxFile) -> None:
        """Record that the queue has the acknowledgement of a file's messages and does not hand them out again."""
        with self._writing() as connection:
            connection.execute(
                statements.ACKNOWLEDGED, {"of_bus": file.bus, "of_topic": file.topic, "first": file.start}
            )

    def note_came_again(self, bus: str, topic: str, count: int) -> None:
        """Add messages that a queue handed out again to the count of the newest file of their topic."""
        of = {"of_bus": bus, "of_topic": topic}
        with self._writing() as connection:
            last = connection.execute(statements.END, of).scalar()
            connection.execute(statements.CAME_AGAIN, {**of, "last": last, "more": count})

    def inbox_files_below(self, bus: str, topic: str, offset: int, before: datetime) -> list[InboxFile]:
        """Return the files that end at or before `offset` and were stored before a time, except the newest.

        The newest file of a topic stays, because the next one begins at its end.
        """
        of = {"of_bus": bus, "of_topic": topic}
        with self._reading() as connection:
            end = connection.execute(statements.END, of).scalar()
            rows = connection.execute(statements.TAKEN, {**of, "last": offset, "at": before})
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

    def drop_inbox_files(self, bus: str, topic: str, offset: int) -> None:
        """Delete the records of a topic's files that end at or before `offset`."""
        with self._writing() as connection:
            connection.execute(statements.DROP, {"of_bus": bus, "of_topic": topic, "last": offset})
