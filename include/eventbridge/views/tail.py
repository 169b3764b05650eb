"""Reads the messages of a bus as they come, without a consumer group; nothing is committed or recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.model.partition import Partition
from eventbridge.pipeline.ingest.checking import as_events, reading
from eventbridge.rules.model import Source
from eventbridge.sources.protocol import LogSource


@dataclass(frozen=True)
class TailedMessage:
    """One message of a bus.

    `event` is None if the message is not an event: `malformed` is why, or None if the message has no body (a
    tombstone).
    """

    partition: Partition
    offset: int
    published_at: datetime
    body: bytes | None
    event: Event | None
    malformed: str | None


class Tail:
    """Follows a log from its end or, with `from_beginning`, from its first message.

    It keeps one position for each partition, and one block of messages in memory.
    """

    def __init__(self, source: LogSource, fields: Source, max_bytes: int, *, from_beginning: bool = False) -> None:
        self._source = source
        self._fields = fields
        self._max_bytes = max_bytes
        self._identities = dict(source.identities())
        ends = source.ends()
        self._positions = {each: source.earliest(each) for each in ends} if from_beginning else dict(ends)

    def poll(self) -> Iterator[TailedMessage]:
        """Yield the messages that were published since the last call, partition by partition, each in its order.

        The messages of a partition that was added since are all new, and so are those of a topic that was created
        again. The caller may stop after any message. Raises BusError and OffsetGapError.
        """
        self._forget_recreated()
        for partition, end in sorted(self._source.ends().items()):
            known = self._positions.get(partition)
            start = self._source.earliest(partition) if known is None else known
            self._positions[partition] = start
            if start < end:  # a replica that lags behind may report an older end
                yield from self._range(partition, start, end)

    def _forget_recreated(self) -> None:
        """Forget the positions in topics that were created again: the new log may already be longer than the old."""
        found = self._source.identities()
        again = {topic for topic, identity in found.items() if self._identities.get(topic, identity) != identity}
        self._identities |= found
        self._positions = {each: at for each, at in self._positions.items() if each.topic not in again}

    def _range(self, partition: Partition, start: int, end: int) -> Iterator[TailedMessage]:
        with closing(reading(self._source, partition, start, end)) as blocks:
            for block in blocks:
                for message in tailed_messages(block, partition, self._fields, self._max_bytes):
                    self._positions[partition] = message.offset + 1
                    yield message
        self._positions[partition] = end


def tailed_messages(
    block: pa.RecordBatch, partition: Partition, fields: Source, max_bytes: int
) -> Iterator[TailedMessage]:
    """Yield the messages of a block that was read from a partition, in their order."""
    table, refused = as_events(pa.Table.from_batches([block]), partition, fields)
    for row in range(table.num_rows):
        offset, at, body = (table[name][row].as_py() for name in ("offset", "published_at", "body"))
        event, malformed = None, refused.get(row)
        if malformed is None and body is not None:
            try:
                event = parse_event(body, max_bytes=max_bytes)
            except EventError as error:
                malformed = str(error)
        yield TailedMessage(partition, offset, at, body, event, malformed)
