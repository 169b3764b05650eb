"""Reads the next events of a partition into memory, with the checks of buffer, and lands nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from eventbridge.errors import EventError
from eventbridge.model.partition import FreshEvent, Partition
from eventbridge.pipeline.ingest.as_events import as_events
from eventbridge.pipeline.ingest.checked import identity_of, names_of
from eventbridge.pipeline.ingest.checking import FILE_MAX_BYTES, reading
from eventbridge.pipeline.ingest.taken_messages import Row, TakenMessages
from eventbridge.rules.model import EventMapping
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.protocol import LogSource, PagedLog, TrimmableLog
from eventbridge.store.columns import vector_of


class FreshRange(NamedTuple):
    """What was read of a partition up to offset `end`: the number of messages, their bytes, and the valid events."""

    end: int
    read: int
    size: int
    events: list[FreshEvent]


@dataclass(frozen=True)
class FreshReading:
    """Reads a few messages of a log at a time, by pages if it has them: for few rows columns cost more.

    Messages of a log with its own retention are added to `taken`; a log that is trimmed by EventBridge keeps them.
    """

    source: LogSource
    mapping: EventMapping | None
    max_bytes: int
    taken: TakenMessages
    _pages: PagedLog | None = field(init=False)
    _adds: bool = field(init=False)

    def __post_init__(self) -> None:
        """Set up how messages are read."""
        pages = self.source if self.mapping is None and isinstance(self.source, PagedLog) else None
        object.__setattr__(self, "_pages", pages)
        object.__setattr__(self, "_adds", not isinstance(self.source, TrimmableLog))

    def next_events(self, partition: Partition, start: int, limit: int, seen: set[bytes]) -> FreshRange:
        """Return the next events of a partition, at least a block; adds the identities of valid events to `seen`."""
        rows, refused, end = self._read(partition, start, limit)
        events: list[FreshEvent] = []
        size = 0
        for number, (offset, published_at, body) in enumerate(rows):
            size += len(body or b"")
            if number in refused or body is None:
                continue
            try:
                event_id, source, _ = names_of(body, self.max_bytes)
            except EventError:
                continue
            identity = identity_of(source, event_id)
            if identity not in seen:
                seen.add(identity)
                events.append(FreshEvent(partition, offset, published_at, event_id, source, body))
        return FreshRange(end, len(rows), size, events)

    def _read(self, partition: Partition, start: int, limit: int) -> tuple[Sequence[Row], Mapping[int, str], int]:
        """Return messages, by row the reasons why some are no events, and the offset up to which they account for the
        log.
        """
        if self._pages is not None:
            return _rows_of(self._pages, partition, start, limit)
        return self._read_blocks(partition, start, limit)

    def _read_blocks(
        self, partition: Partition, start: int, limit: int
    ) -> tuple[Sequence[Row], Mapping[int, str], int]:
        blocks: list[pa.RecordBatch] = []
        size = 0
        with closing(reading(self.source, partition, start, limit)) as messages:
            for block in messages:
                blocks.append(block)
                size += block["body"].nbytes
                if size >= FILE_MAX_BYTES:
                    limit = int(block["offset"][-1].as_py()) + 1
                    break
        table, refused = as_events(pa.Table.from_batches(blocks, schema=MESSAGES), partition, self.mapping)
        offsets, published = (vector_of(table[name]).tolist() for name in ("offset", "published_at"))
        rows = list(zip(offsets, published, table["body"].to_pylist(), strict=True))
        if self._adds:
            self.taken.add(partition, start, limit, rows, refused)
        return rows, refused, limit


def _rows_of(
    source: PagedLog, partition: Partition, start: int, limit: int
) -> tuple[list[Row], Mapping[int, str], int]:
    rows: list[Row] = []
    size = 0
    with closing(source.pages(partition, start, limit)) as pages:
        for page in pages:
            rows += page
            size += sum(len(body) for _, _, body in page)
            if size >= FILE_MAX_BYTES:
                return rows, {}, page[-1][0] + 1
    return rows, {}, limit
