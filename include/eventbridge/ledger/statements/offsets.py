"""Statements about the identity of the ledger and the committed offsets of consumer groups."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, Text, bindparam, func, select, update

from eventbridge.ledger.columns import UtcTime
from eventbridge.ledger.definitions import word
from eventbridge.ledger.statements.inserts import insert_or_skip
from eventbridge.ledger.statements.partitions import of_partition
from eventbridge.ledger.tables import batch, batch_range, consumer_offset, ledger

#: The identity of this ledger.
LEDGER_ID = select(ledger.c.ledger_id)

#: The oldest revision whose versions may use the tables.
SERVES_FROM = select(ledger.c.serves_from)

#: Records that revision.
NOTE_SERVES_FROM = update(ledger).values(serves_from=bindparam("revision"))

#: Serialises transactions that decide on rows which others may add meanwhile, until the transaction ends.
TAKE_TURN = select(ledger.c.singleton).with_for_update()

#: Gives a new ledger its id, unless it has one.
NAME_LEDGER = insert_or_skip(ledger)

#: Sets where a group starts in a partition, unless it is already set.
REGISTER_PARTITIONS = insert_or_skip(consumer_offset)

#: Records the log to which a group's offsets refer, if it is not recorded yet.
IDENTIFY_BUS = (
    update(consumer_offset)
    .where(
        consumer_offset.c.consumer_group == bindparam("of_group"),
        consumer_offset.c.topic_name == bindparam("of_topic"),
        consumer_offset.c.bus_identity == "",
    )
    .values(bus_identity=bindparam("identity"))
)

#: Moves one committed offset, only from its expected value; `last` None: the last message stays as recorded.
MOVE_OFFSET = (
    update(consumer_offset)
    .where(
        consumer_offset.c.consumer_group == bindparam("of_group"),
        of_partition(consumer_offset),
        consumer_offset.c.offset == bindparam("expected"),
    )
    .values(
        offset=bindparam("to"),
        ctime=bindparam("now", type_=UtcTime),
        message_id=func.coalesce(bindparam("last", type_=Text), consumer_offset.c.message_id),
    )
)


#: Where the oldest recorded batch of each runner begins in each partition of a bus.
FIRST_OFFSETS = (
    select(
        batch.c.runner,
        batch_range.c.topic_name,
        batch_range.c.broker_name,
        batch_range.c.partition_id,
        func.min(batch_range.c.start_offset).label("offset"),
    )
    .join(batch_range, batch_range.c.batch_id == batch.c.batch_id)
    .where(batch.c.bus == bindparam("of_bus"), batch.c.kind == word("normal"))
    .group_by(batch.c.runner, batch_range.c.topic_name, batch_range.c.broker_name, batch_range.c.partition_id)
)


def offsets(group: str | None) -> Select[Any]:
    """Return the query for committed offsets, of one group or of all, in order."""
    found = select(consumer_offset).order_by(*consumer_offset.primary_key)
    return found if group is None else found.where(consumer_offset.c.consumer_group == group)
