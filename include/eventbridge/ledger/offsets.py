"""Committed offsets in the ledger: where a consumer group starts, and how far it has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.errors import BooksError
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import offsets as statements
from eventbridge.model.batch import Range, ReadRange
from eventbridge.model.consumer_offset import ConsumerOffset
from eventbridge.model.queue import Queue


class Offsets(Database):
    """The part of the ledger about committed offsets; a consumer group is named as its runner is."""

    def register_queues(
        self, group: str, bus: str, offsets: Mapping[Queue, int], identities: Mapping[str, str] | None = None
    ) -> None:
        """Set where a group starts in queues of a bus; a queue that is registered keeps its offset and identity.

        `identities`: those of the logs that the offsets count on, by topic.
        """
        now = self.now()
        rows = [
            {
                "consumer_group": group,
                "bus": bus,
                "topic_name": queue.topic,
                "broker_name": queue.broker,
                "queue_id": queue.queue_id,
                "offset": offset,
                "message_id": "",
                "ctime": now,
                "bus_identity": (identities or {}).get(queue.topic, ""),
            }
            for queue, offset in sorted(offsets.items())
        ]
        if rows:
            with self._writing() as connection:
                connection.execute(statements.REGISTER_QUEUES, rows)

    def identify_bus(self, group: str, identities: Mapping[str, str]) -> None:
        """Note which logs a group's offsets count on, by topic, where that is not known; what is known stays."""
        rows = [{"of_group": group, "of_topic": topic, "identity": identity} for topic, identity in identities.items()]
        if rows:
            with self._writing() as connection:
                connection.execute(statements.IDENTIFY_BUS, rows)

    def committed_offsets(self, group: str) -> dict[Queue, int]:
        """Return the offset next to be taken from each registered queue of a group; empty for an unknown group."""
        return {found.queue: found.offset for found in self.consumer_offsets(group)}

    def consumer_offsets(self, group: str | None = None) -> list[ConsumerOffset]:
        """Return the committed offsets of a group, or of all, in order of group and queue."""
        with self._reading() as connection:
            return offsets_of(connection, group)

    def first_offsets(self, bus: str) -> dict[Queue, dict[str, int]]:
        """Return by queue where each runner of a bus begins: with its oldest batch on record, else where it stands.

        Costs by the batches of the bus.
        """
        found: dict[Queue, dict[str, int]] = defaultdict(dict)
        with self._reading() as connection:
            for each in offsets_of(connection):
                if each.bus == bus:
                    found[each.queue][each.group] = each.offset
            for row in connection.execute(statements.FIRST_OFFSETS, {"of_bus": bus}):
                queue = Queue(row.topic_name, row.broker_name, row.queue_id)
                found[queue][row.runner] = min(row.offset, found[queue].get(row.runner, row.offset))
        return dict(found)


def offsets_of(connection: Connection, group: str | None = None) -> list[ConsumerOffset]:
    """Return the committed offsets of a group, or of all, in order of group and queue."""
    return [
        ConsumerOffset(
            row.consumer_group,
            row.bus,
            Queue(row.topic_name, row.broker_name, row.queue_id),
            row.offset,
            row.message_id,
            row.ctime,
            row.bus_identity,
        )
        for row in connection.execute(statements.offsets(group))
    ]


def move_offset(connection: Connection, group: str, moved: Range, now: datetime) -> None:
    """Move a committed offset from the start of a range to its end, in the transaction of `commit_batch`.

    Raises BooksError if it does not stand at the start; then the transaction must not be committed.
    """
    queue = moved.queue
    change = {
        "of_group": group,
        "of_topic": queue.topic,
        "of_broker": queue.broker,
        "of_queue": queue.queue_id,
        "expected": moved.start,
        "to": moved.end,
        "last": moved.last_message.text if isinstance(moved, ReadRange) and moved.last_message else None,
        "now": now,
    }
    if moved.end < moved.start or connection.execute(statements.MOVE_OFFSET, change).rowcount != 1:
        raise BooksError(
            f"Group {group}, topic {queue.topic}, broker {queue.broker or '-'}, queue {queue.queue_id}: "
            f"the committed offset is not {moved.start}, so it was not moved to {moved.end}. "
            f"`eventbridge status` shows where it stands; nothing was committed."
        )
