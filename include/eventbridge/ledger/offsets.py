"""Stores committed offsets in the ledger: where a consumer group starts, and its current offsets.

`move_offset` moves them, in the transaction that commits a batch (`settlement.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from eventbridge.errors import ReconciliationError
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import UtcTime, insert_or_skip, metadata, naming, partition_condition, to_partition
from eventbridge.model.batch import Range, ReadRange
from eventbridge.model.partition import ConsumerOffset, Partition

#: Columns have the names of the offset table of RocketMQ EventBridge, except `partition_id` and `bus_identity`.
consumer_offset = sa.Table(
    "consumer_offset",
    metadata,
    sa.Column("consumer_group", sa.Text, nullable=False),
    sa.Column("bus", sa.Text, nullable=False),
    sa.Column("topic_name", sa.Text, nullable=False),
    sa.Column("broker_name", sa.Text, nullable=False),
    sa.Column("partition_id", sa.Integer, nullable=False),
    sa.Column("offset", sa.BigInteger, nullable=False),
    sa.Column("message_id", sa.Text, nullable=False),
    sa.Column("ctime", UtcTime, nullable=False),
    sa.Column("bus_identity", sa.Text, nullable=False, server_default=""),
    sa.PrimaryKeyConstraint("consumer_group", "topic_name", "broker_name", "partition_id"),
)

#: Records the log to which a group's offsets refer, if it is not recorded yet.
IDENTIFY_BUS = (
    sa.update(consumer_offset)
    .where(
        consumer_offset.c.consumer_group == sa.bindparam("of_group"),
        consumer_offset.c.topic_name == sa.bindparam("of_topic"),
        consumer_offset.c.bus_identity == "",
    )
    .values(bus_identity=sa.bindparam("identity"))
)

#: Moves one committed offset, only from its expected value; if `last` is None, the last message stays as recorded.
MOVE_OFFSET = (
    sa.update(consumer_offset)
    .where(
        consumer_offset.c.consumer_group == sa.bindparam("of_group"),
        partition_condition(consumer_offset),
        consumer_offset.c.offset == sa.bindparam("expected"),
    )
    .values(
        offset=sa.bindparam("to"),
        ctime=sa.bindparam("now", type_=UtcTime),
        message_id=sa.func.coalesce(sa.bindparam("last", type_=sa.Text), consumer_offset.c.message_id),
    )
)


def select_offsets(group: str | None) -> sa.Select[Any]:
    """Return the query for committed offsets, of one group or of all, in order."""
    found = sa.select(consumer_offset).order_by(*consumer_offset.primary_key)
    return found if group is None else found.where(consumer_offset.c.consumer_group == group)


class Offsets(Aggregate):
    """Committed offsets; a consumer group has the name of its runner."""

    def register(
        self, group: str, bus: str, offsets: Mapping[Partition, int], identities: Mapping[str, str] | None = None
    ) -> None:
        """Set where a group starts in partitions of a bus; a registered partition keeps its offset and identity.

        `identities`: the identities of the logs to which the offsets refer, by topic.
        """
        now = self._now()
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
            self._change(insert_or_skip(consumer_offset), rows)

    def identify_bus(self, group: str, identities: Mapping[str, str]) -> None:
        """Record the identities of the logs to which a group's offsets refer, by topic; recorded identities stay."""
        rows = [{"of_group": group, "of_topic": topic, "identity": identity} for topic, identity in identities.items()]
        if rows:
            self._change(IDENTIFY_BUS, rows)

    def committed(self, group: str) -> dict[Partition, int]:
        """Return the next offset to take from each registered partition of a group; empty for an unknown group."""
        return {found.partition: found.offset for found in self.find(group)}

    def find(self, group: str | None = None) -> list[ConsumerOffset]:
        """Return the committed offsets of a group, or of all, in order of group and partition."""
        with self._reading() as connection:
            return offsets_of(connection, group)


def offsets_of(connection: sa.Connection, group: str | None = None) -> list[ConsumerOffset]:
    """Return the committed offsets of a group, or of all, in order of group and partition."""
    return [
        ConsumerOffset(
            row.consumer_group, row.bus, to_partition(row), row.offset, row.message_id, row.ctime, row.bus_identity
        )
        for row in connection.execute(select_offsets(group))
    ]


def move_offset(connection: sa.Connection, group: str, moved: Range, now: datetime) -> None:
    """Move a committed offset from the start of a range to its end, in the transaction of the commit.

    Raises ReconciliationError if the offset is not at the start of the range; the transaction must then be rolled back.
    """
    partition = moved.partition
    change = {
        "of_group": group,
        **naming(partition),
        "expected": moved.start,
        "to": moved.end,
        "last": moved.last_message.text if isinstance(moved, ReadRange) and moved.last_message else None,
        "now": now,
    }
    if moved.end < moved.start or connection.execute(MOVE_OFFSET, change).rowcount != 1:
        raise ReconciliationError(
            f"Group {group}, topic {partition.topic}, broker {partition.broker or '-'}, "
            f"partition {partition.partition_id}: the committed offset is not {moved.start}, "
            f"so it was not moved to {moved.end}. "
            f"`eventbridge status` shows its position; nothing was committed."
        )
