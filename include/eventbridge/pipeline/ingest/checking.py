"""Checks messages on their way into the archive, and makes of a partition the rows that fit one file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.model.event_schema import TypeSample
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import LastMessage, Partition
from eventbridge.pipeline.ingest.as_events import as_events
from eventbridge.pipeline.ingest.checked import Check, CheckResult, check_one_by_one, identity_of
from eventbridge.pipeline.ingest.taken_messages import TakenMessages
from eventbridge.policy.schema_sample import rows_to_sample, sample_bodies
from eventbridge.rules.model import EventMapping
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.protocol import LogSource
from eventbridge.store import layout
from eventbridge.store.columns import (
    column_of,
    numbers_of,
    same,
    time_code,
    times,
    with_codes,
)
from eventbridge.store.parquet import TableWriter, read_table
from eventbridge.store.protocol import Store
from eventbridge.store.schemas import BUFFER, ROW_GROUP_ROWS

#: Bytes of messages per landed file: with large events this bounds the memory.
FILE_MAX_BYTES = 24 << 20

#: Ids differ from row to row; a file has few distinct other texts.
_BUFFER = with_codes(BUFFER, but=("message_id", "event_id"))


class Limits(NamedTuple):
    """The maximum events of a file and bytes of an event, and how many events a schema is learned from.

    `example_bytes` is the maximum length of a value that is kept as an example; 0 keeps none.
    """

    file_events: int
    event_max_size: int
    sample_events: int = 0
    example_bytes: int = 0


class CheckedFile(NamedTuple):
    """The content of one file: rows of schema BUFFER, the record of them, and the identities of the valid events.

    `samples` are samples of these events, by type.
    """

    rows: pa.Table
    detail: LandedRange
    identities: set[bytes]
    samples: dict[str, TypeSample]


@dataclass(frozen=True)
class Checking:
    """Reads messages of a log and checks them with `check`; `clock` gives their time of arrival."""

    source: LogSource
    mapping: EventMapping | None
    limits: Limits
    clock: Callable[[], datetime]
    check: Check = check_one_by_one

    def next_file(
        self, partition: Partition, start: int, limit: int, seen: AbstractSet[bytes], *, is_gap: bool = False
    ) -> CheckedFile:
        """Return the next messages of a partition, as many as fit one file; `is_gap`: all up to `limit` are passed
        over.

        An event with an identity in `seen` is a duplicate.
        """
        messages, end = self._read(partition, start if not is_gap else limit, limit)
        return self._file(partition, start, end, *as_events(messages, partition, self.mapping), seen)

    def taken_file(
        self, taken: TakenMessages, partition: Partition, start: int, limit: int, seen: AbstractSet[bytes]
    ) -> CheckedFile:
        """Return the next taken messages of a partition, as many as fit one file, without reading the log."""
        messages, refused, end = taken.messages(partition, start, limit, self.limits.file_events, FILE_MAX_BYTES)
        return self._file(partition, start, end, messages, refused, seen)

    def _file(
        self,
        partition: Partition,
        start: int,
        end: int,
        messages: pa.Table,
        refused: Mapping[int, str],
        seen: AbstractSet[bytes],
    ) -> CheckedFile:
        checked = self.check(messages["body"], refused, seen, self.limits.event_max_size)
        rows = _rows(partition, messages, checked, self.clock())
        samples = self._sample(messages, checked)
        return CheckedFile(rows, _landed(partition, start, end, messages, checked), checked.identities, samples)

    def _sample(self, messages: pa.Table, checked: CheckResult) -> dict[str, TypeSample]:
        chosen = rows_to_sample(checked.types, self.limits.sample_events)
        if not chosen:
            return {}
        return sample_bodies(messages["body"].take(pa.array(chosen)).to_pylist(), self.limits.example_bytes)

    def _read(self, partition: Partition, start: int, limit: int) -> tuple[pa.Table, int]:
        """Return the next messages, as many as fit one file, and the offset up to which they account for the log."""
        blocks: list[pa.RecordBatch] = []
        events, size = self.limits.file_events, FILE_MAX_BYTES
        with closing(reading(self.source, partition, start, limit)) as messages:
            for block in messages:
                taken = _fitting(block, events, size)
                blocks.append(block.slice(0, taken))
                events -= taken
                size -= pc.sum(pc.binary_length(blocks[-1]["body"])).as_py() or 0
                if events <= 0 or size <= 0:
                    return pa.Table.from_batches(blocks), int(blocks[-1]["offset"][-1].as_py()) + 1
        return pa.Table.from_batches(blocks, schema=MESSAGES), limit


def valid_identities(store: Store, path: str) -> set[bytes]:
    """Return the identities of the valid events of an archive file; raises StoreError."""
    table = read_table(store, path, columns=["status", "source", "event_id"])
    valid = table.filter(pc.equal(table["status"], "valid"))
    return set(map(identity_of, valid["source"].to_pylist(), valid["event_id"].to_pylist()))


def write_file(store: Store, bus: str, planned_at: datetime, batch_id: str, rows: pa.Table) -> str | None:
    """Write rows into the archive and return the path, or None if there are no rows.

    The name is unique: a late or repeated write leaves an unused file and changes no recorded one.
    """
    if not rows.num_rows:
        return None
    path = layout.buffer(bus, planned_at, batch_id, uuid.uuid4().hex)
    writer = TableWriter(store, path, ROW_GROUP_ROWS)
    writer.write(rows)
    writer.close()
    return path


def _fitting(block: pa.RecordBatch, events: int, size: int) -> int:
    """Return how many messages of a block it takes to reach the number of events or of bytes."""
    sizes = np.cumsum(pc.fill_null(pc.binary_length(block["body"]), 0).to_numpy(zero_copy_only=False))
    enough = int(np.searchsorted(sizes, size)) + 1
    return min(events, enough, int(block.num_rows))


def reading(source: LogSource, partition: Partition, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
    """Yield what a source reads, as a generator that can be closed early."""
    # A generator of our own: a source may give any iterator, and only generators have close().
    yield from source.read(partition, start, end)


def _rows(partition: Partition, messages: pa.Table, checked: CheckResult, arrived_at: datetime) -> pa.Table:
    """Return messages as rows of schema BUFFER, with repeated texts dictionary-coded."""
    count = messages.num_rows
    place = "-".join(str(part) for part in partition if part != "")
    columns = {
        "topic": same(partition.topic, count),
        "broker": same(partition.broker, count),
        "partition_id": column_of(np.full(count, partition.partition_id), pa.int32()),
        "offset": messages["offset"],
        "message_id": pc.binary_join_element_wise(place, messages["offset"].cast(pa.string()), "-"),
        "published_at": messages["published_at"],
        "arrived_at": times(np.full(count, time_code(arrived_at))),
        **checked.columns,
        "body": messages["body"].fill_null(b""),
    }
    return pa.Table.from_arrays([columns[name] for name in BUFFER.names], schema=_BUFFER)


def _landed(partition: Partition, start: int, end: int, messages: pa.Table, checked: CheckResult) -> LandedRange:
    edges = np.concatenate(([start - 1], numbers_of(messages["offset"]), [end]))
    holes = np.flatnonzero(np.diff(edges) > 1)
    return LandedRange(
        partition=partition,
        start=start,
        end=end,
        read=messages.num_rows,
        valid=checked.counts.get("valid", 0),
        duplicate=checked.counts.get("duplicate", 0),
        malformed=checked.counts.get("malformed", 0),
        tombstone=checked.counts.get("tombstone", 0),
        size=pc.sum(pc.binary_length(messages["body"])).as_py() or 0,
        gaps=tuple(zip((edges[holes] + 1).tolist(), edges[holes + 1].tolist(), strict=True)),
        last=_last(messages),
    )


def _last(messages: pa.Table) -> LastMessage | None:
    if not messages.num_rows:
        return None
    return LastMessage(messages["offset"][-1].as_py(), messages["published_at"].cast(pa.int64())[-1].as_py())
