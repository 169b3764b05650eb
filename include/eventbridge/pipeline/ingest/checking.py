"""Checks messages before they are archived, and builds the rows of one file from a partition.

An event must be a valid CloudEvent and new in its batch. Messages in other forms are converted to structured JSON.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import EventError
from eventbridge.event.bindings import (
    MessageOrigin,
    event_from_binary,
    event_from_plain,
    event_from_tombstone,
    form_of,
    tombstone_problem,
)
from eventbridge.event.cloudevent import parse_event, recognise
from eventbridge.model.event_schema import TypeSample
from eventbridge.model.file_detail import LandedRange
from eventbridge.model.partition import LastMessage, Partition
from eventbridge.pipeline.ingest.taken_messages import TakenMessages
from eventbridge.policy.schema import rows_to_sample, sample_bodies
from eventbridge.rules.model import Source
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.protocol import LogSource
from eventbridge.store import layout
from eventbridge.store.columns import (
    coded_column,
    column_of,
    numbers_of,
    same,
    strings,
    time_code,
    times,
    with_codes,
)
from eventbridge.store.parquet import TableWriter, read_table
from eventbridge.store.protocol import Store
from eventbridge.store.schemas import BUFFER, ROW_GROUP_ROWS

#: The size of an event's identity, in bytes.
IDENTITY_BYTES: Final = 16


@dataclass(frozen=True)
class CheckResult:
    """The result of checking the messages of a file, in their order.

    `columns` are the columns of the BUFFER schema that the checks determine; all except `event_id` are
    dictionary-coded. `types` has the type of each message, or None if it is not an event. `counts` is the number of
    messages by status, and `identities` are the identities of the valid events.
    """

    columns: Mapping[str, pa.Array]
    types: Sequence[str | None]
    counts: Mapping[str, int]
    identities: set[bytes]


#: Checks bodies, given the reasons of refused rows, known identities, and the maximum size of an event in bytes.
Check: TypeAlias = Callable[[pa.ChunkedArray, Mapping[int, str], AbstractSet[bytes], int], CheckResult]


def check_one_by_one(
    bodies: pa.ChunkedArray, refused: Mapping[int, str], seen: AbstractSet[bytes], max_bytes: int
) -> CheckResult:
    """Check each message separately. An event is a duplicate if its identity is in `seen` or occurred earlier."""
    rows = CheckedRows(seen)
    for row, body in enumerate(bodies.to_pylist()):
        if row in refused:
            rows.add_malformed(refused[row])
        else:
            rows.add_message(body, max_bytes)
    return rows.result()


@dataclass
class CheckedRows:
    """Collects the rows of checked messages, one after the other."""

    seen: AbstractSet[bytes]
    _statuses: list[str] = field(default_factory=list)
    _event_ids: list[str | None] = field(default_factory=list)
    _sources: list[str | None] = field(default_factory=list)
    _types: list[str | None] = field(default_factory=list)
    _reasons: list[str | None] = field(default_factory=list)
    _identities: set[bytes] = field(default_factory=set)

    def add_message(self, body: bytes | None, max_bytes: int) -> None:
        """Check a message and add its row; a message without a body is a tombstone."""
        if body is None:
            self._add("tombstone", None, None, None, None)
            return
        try:
            event_id, source, type_ = names_of(body, max_bytes)
        except EventError as error:
            self.add_malformed(str(error))
        else:
            self.add_event(event_id, source, type_, identity_of(source, event_id))

    def add_event(self, event_id: str, source: str, type_: str, identity: bytes) -> None:
        """Add an event, as a duplicate if its identity is known."""
        known = identity in self._identities or identity in self.seen
        if not known:
            self._identities.add(identity)
        self._add("duplicate" if known else "valid", event_id, source, type_, None)

    def add_malformed(self, reason: str) -> None:
        """Add a message that is not an event."""
        self._add("malformed", None, None, None, reason)

    def result(self) -> CheckResult:
        """Return the result for all rows that were added."""
        columns = {
            "status": coded_column(self._statuses),
            "reason": coded_column(self._reasons),
            "event_id": strings(self._event_ids),
            "source": coded_column(self._sources),
            "type": coded_column(self._types),
        }
        return CheckResult(columns, self._types, Counter(self._statuses), self._identities)

    def _add(
        self, status: str, event_id: str | None, source: str | None, type_: str | None, reason: str | None
    ) -> None:
        self._statuses.append(status)
        self._event_ids.append(event_id)
        self._sources.append(source)
        self._types.append(type_)
        self._reasons.append(reason)


def names_of(body: bytes, max_bytes: int) -> tuple[str, str, str]:
    """Return the id, source and type of an event. Raises EventError if it is not an event or exceeds `max_bytes`."""
    found = recognise(body, max_bytes=max_bytes)
    if found is not None:
        return found
    event = parse_event(body, max_bytes=max_bytes)
    return event.id, event.source, event.type


def identity_of(source: str, event_id: str) -> bytes:
    """Return the identity of events with this source and id, which no other events have."""
    # 16 bytes instead of both strings, because a batch of half a million events must fit into the memory of one task.
    text = f"{len(source)}:{source}{event_id}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=IDENTITY_BYTES).digest()


#: A landed file is complete at this many bytes of messages. The limit bounds the memory that is used if events are
#: large.
FILE_MAX_BYTES = 24 << 20

#: Ids differ from row to row, so they are not dictionary-coded. The other strings have few distinct values in a file.
_BUFFER = with_codes(BUFFER, but=("message_id", "event_id"))


class Limits(NamedTuple):
    """The maximum number of events in a file, the maximum size of an event, and how many events of a file are sampled.

    Schemas are learned from the sampled events. `example_bytes` is the maximum length of a value that is kept as an
    example; 0 keeps none.
    """

    file_events: int
    event_max_size: int
    sample_events: int = 0
    example_bytes: int = 0


class CheckedFile(NamedTuple):
    """The content of one file: rows of the BUFFER schema, their record, and the identities of the valid events.

    `samples` has a sample of each event type.
    """

    rows: pa.Table
    detail: LandedRange
    identities: set[bytes]
    samples: dict[str, TypeSample]


@dataclass(frozen=True)
class Checking:
    """Reads messages of a log and checks them with `check`; `clock` returns the time at which they arrived."""

    source: LogSource
    fields: Source
    limits: Limits
    clock: Callable[[], datetime]
    check: Check = check_one_by_one

    def next_file(
        self, partition: Partition, start: int, limit: int, seen: AbstractSet[bytes], *, is_gap: bool = False
    ) -> CheckedFile:
        """Return the next messages of a partition, as many as fit one file. If `is_gap`, skip all messages up to
        `limit`.

        An event with an identity in `seen` is a duplicate.
        """
        messages, end = self._read_messages(partition, start if not is_gap else limit, limit)
        return self._file(partition, start, end, *as_events(messages, partition, self.fields), seen)

    def check_taken_file(
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

    def _read_messages(self, partition: Partition, start: int, limit: int) -> tuple[pa.Table, int]:
        """Return the next messages, as many as fit one file, and the offset up to which the log was read."""
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
    """Return the identities of the valid events in an archive file. Raises StoreError if it cannot be read."""
    table = read_table(store, path, columns=["status", "source", "event_id"])
    valid = table.filter(pc.equal(table["status"], "valid"))
    return set(map(identity_of, valid["source"].to_pylist(), valid["event_id"].to_pylist()))


def write_file(store: Store, bus: str, planned_at: datetime, batch_id: str, rows: pa.Table) -> str | None:
    """Write rows into the archive and return the path, or None if there are no rows.

    The path is unique, so a late or repeated write leaves an unused file and changes no recorded one.
    """
    if not rows.num_rows:
        return None
    path = layout.buffer(bus, planned_at, batch_id, uuid.uuid4().hex)
    writer = TableWriter(store, path, ROW_GROUP_ROWS)
    writer.write(rows)
    writer.close()
    return path


def _fitting(block: pa.RecordBatch, events: int, size: int) -> int:
    """Return how many messages of a block it takes to reach `events` messages or `size` bytes, at most all."""
    sizes = np.cumsum(pc.fill_null(pc.binary_length(block["body"]), 0).to_numpy(zero_copy_only=False))
    enough = int(np.searchsorted(sizes, size)) + 1
    return min(events, enough, int(block.num_rows))


def reading(source: LogSource, partition: Partition, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
    """Yield the blocks of a source from a generator that can be closed early."""
    # It wraps the source because a source may return any iterator, and only generators have close().
    yield from source.read(partition, start, end)


def _rows(partition: Partition, messages: pa.Table, checked: CheckResult, arrived_at: datetime) -> pa.Table:
    """Return messages as rows of the BUFFER schema, with repetitive strings dictionary-coded."""
    count = messages.num_rows
    prefix = "-".join(str(part) for part in partition if part != "")
    columns = {
        "topic": same(partition.topic, count),
        "broker": same(partition.broker, count),
        "partition_id": column_of(np.full(count, partition.partition_id), pa.int32()),
        "offset": messages["offset"],
        "message_id": pc.binary_join_element_wise(prefix, messages["offset"].cast(pa.string()), "-"),
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


def as_events(messages: pa.Table, partition: Partition, fields: Source) -> tuple[pa.Table, Mapping[int, str]]:
    """Return messages with bodies in structured JSON, and the reasons, by row, why some are not events.

    The body of a refused message is kept. Without a mapping, a message whose headers name no form is unchanged, and its
    body decides whether it is an event. A message without a body is a tombstone, unless it is an event in binary mode
    without data. `fields.tombstones` decides whether a tombstone stays without a body, is refused, or becomes an event.
    """
    has_tombstones = fields.tombstones != "ignore" and messages["body"].null_count > 0
    if fields.mapping is None and not has_tombstones and not _has_binary(messages["headers"]):
        return messages, {}
    refused: dict[int, str] = {}
    bodies: list[bytes | None] = []
    columns = [messages[name].to_pylist() for name in _Message._fields]
    for row, message in enumerate(map(_Message._make, zip(*columns, strict=True))):
        try:
            bodies.append(_body_of(message, partition, fields))
        except EventError as error:
            refused[row] = str(error)
            bodies.append(message.body)
    column = messages.schema.get_field_index("body")
    return messages.set_column(column, messages.schema.field("body"), pa.array(bodies, pa.binary())), refused


class _Message(NamedTuple):
    """One message; the fields are columns of the MESSAGES schema."""

    offset: int
    published_at: datetime
    key: bytes | None
    headers: list[dict[str, Any]] | None
    body: bytes | None

    def origin(self, partition: Partition) -> MessageOrigin:
        return MessageOrigin("-".join(str(part) for part in (*partition, self.offset) if part != ""), self.published_at)


def _body_of(message: _Message, partition: Partition, fields: Source) -> bytes | None:
    """Return a message's body in structured JSON, or None for a tombstone. Raises EventError if it is refused."""
    headers = [(each["name"], each["value"]) for each in message.headers or ()]
    form = form_of(headers)
    if form == "binary":
        return event_from_binary(headers, message.body)
    if message.body is None:
        return _tombstone(message, partition, fields)
    if form == "plain" and fields.mapping is not None:
        return event_from_plain(fields.mapping.attributes, message.body, message.origin(partition), headers)
    return message.body


def _tombstone(message: _Message, partition: Partition, fields: Source) -> bytes | None:
    if fields.tombstones == "dead_letter":
        raise EventError(tombstone_problem(message.key))
    if fields.tombstones == "ignore":
        return None
    mapped = fields.mapping.source if fields.mapping is not None else "$"  # a path leads into a body, which is missing
    source = f"/kafka/{partition.topic}" if mapped.startswith("$") else mapped
    return event_from_tombstone(source, message.key, message.origin(partition))


def _has_binary(headers: pa.ChunkedArray) -> bool:
    """Return whether the headers of any message mark it as an event in binary mode."""
    if headers.null_count == len(headers):
        return False
    return any(pc.any(pc.equal(chunk.flatten().field("name"), "ce_specversion")).as_py() for chunk in headers.chunks)
