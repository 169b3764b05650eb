"""Committed offsets in the ledger: where a consumer group starts, and its current offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.errors import ReconciliationError
from eventbridge.ledger.database import Database
from eventbridge.ledger.statements import offsets as statements
from eventbridge.model.batch import Range, ReadRange
from eventbridge.model.partition import ConsumerOffset, Partition


class Offsets(Database):
    """The part of the ledger about committed offsets; a consumer group has the name of its runner."""

    def register_partitions(
        self, group: str, bus: str, offsets: Mapping[Partition, int], identities: Mapping[str, str] | None = None
    ) -> None:
        """Set where a group starts in partitions of a bus.

        A registered partition keeps its offset and identity.

        `identities`: the identities of the logs to which the offsets refer, by topic.
        """
        now = self.now()
        rows = [
            {
                "consumer_group": group,
                "bus": bus,
                "topic_name": partition.topic,
                "broker_name": partition.broker,
                "partition_id": partition.partition_id,
                "offset": offset,
                "message_id": "",
                "ctime": now,
                "bus_identity": (identities or {}).get(partition.topic, ""),
            }
            for partition, offset in sorted(offsets.items())
        ]
        if rows:
            with self._writing() as connection:
                connection.execute(statements.REGISTER_PARTITIONS, rows)

    def identify_bus(self, group: str, identities: Mapping[str, str]) -> None:
        """Record the identities of the logs to which a group's offsets refer, by topic; known identities stay."""
        rows = [{"of_group": group, "of_topic": topic, "identity": identity} for topic, identity in identities.items()]
        if rows:
            with self._writing() as connection:
                connection.execute(statements.IDENTIFY_BUS, rows)

    def committed_offsets(self, group: str) -> dict[Partition, int]:
        """Return the next offset to take from each registered partition of a group; empty for an unknown group."""
        return {found.partition: found.offset for found in self.consumer_offsets(group)}

    def consumer_offsets(self, group: str | None = None) -> list[ConsumerOffset]:
        """Return the committed offsets of a group, or of all, in order of group and partition."""
        with self._reading() as connection:
            return offsets_of(connection, group)

    def first_offsets(self, bus: str) -> dict[Partition, dict[str, int]]:
        """Return, by partition, the first offset of each runner of a bus: of its oldest batch, else its current one.

        The cost grows with the number of batches of the bus.
        """
        found: dict[Partition, dict[str, int]] = defaultdict(dict)
        with self._reading() as connection:
            for each in offsets_of(connection):
                if each.bus == bus:
                    found[each.partition][each.group] = each.offset
            for row in connection.execute(statements.FIRST_OFFSETS, {"of_bus": bus}):
                partition = Partition(row.topic_name, row.broker_name, row.partition_id)
                found[partition][row.runner] = min(row.offset, found[partition].get(row.runner, row.offset))
        return dict(found)


def offsets_of(connection: Connection, group: str | None = None) -> list[ConsumerOffset]:
    """Return the committed offsets of a group, or of all, in order of group and partition."""
    return [
        ConsumerOffset(
            row.consumer_group,
            row.bus,
            Partition(row.topic_name, row.broker_name, row.partition_id),
            row.offset,
            row.message_id,
            row.ctime,
            row.bus_identity,
        )
        for row in connection.execute(statements.offsets(group))
    ]


def move_offset(connection: Connection, group: str, moved: Range, now: datetime) -> None:
    """Move a committed offset from the start of a range to its end, in the transaction of `commit_batch`.

    Raises ReconciliationError if the offset is not at the start; the transaction must not be committed then.
    """
    partition = moved.partition
    change = {
        "of_group": group,
        "of_topic": partition.topic,
        "of_broker": partition.broker,
        "of_partition": partition.partition_id,
        "expected": moved.start,
        "to": moved.end,
        "last": moved.last_message.text if isinstance(moved, ReadRange) and moved.last_message else None,
        "now": now,
    }
    if moved.end < moved.start or connection.execute(statements.MOVE_OFFSET, change).rowcount != 1:
        raise ReconciliationError(
            f"Group {group}, topic {partition.topic}, broker {partition.broker or '-'}, "
            f"partition {partition.partition_id}: the committed offset is not {moved.start}, "
            f"so it was not moved to {moved.end}. "
            f"`eventbridge status` shows where it stands; nothing was committed."
        )
