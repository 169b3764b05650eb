"""Stage buffer: reads the batch's ranges, checks each message and lands it in the store: the archive."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.errors import EventError
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.event.recognise import recognise
from eventbridge.model.batch import Batch, BatchFile, Range
from eventbridge.model.landed import LandedRange
from eventbridge.model.queue import Queue
from eventbridge.rule import Bus
from eventbridge.sources.messages import MESSAGES
from eventbridge.sources.protocol import LogSource
from eventbridge.stages.guards.log_identity import refuse_other_log
from eventbridge.stages.ingest.as_events import as_events
from eventbridge.stages.ingest.deleted_range import passes_over
from eventbridge.stages.runtime.prepare_budget import PrepareBudget
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.stages.runtime.told import told
from eventbridge.store import layout
from eventbridge.store.columns import column_of, listed, numbers_of, same, strings, time_code, times, with_codes
from eventbridge.store.parquet import TableWriter, read_table
from eventbridge.store.schemas import BUFFER, ROW_GROUP_ROWS

#: Bytes of messages per landed file: with large events this bounds the memory, not the number of events.
FILE_MAX_BYTES = 16 << 20

#: Ids differ from row to row; of the other texts a file has few.
_BUFFER = with_codes(BUFFER, but=("message_id", "event_id"))


@told("buffer")
def buffer(work: Runtime, batch_id: str) -> None:
    """Land what is not landed yet of a planned batch, then move it to `buffered`; later calls do nothing.

    Each finished sub-range is recorded, so a run that dies loses one of them. A message that is not a CloudEvent is
    kept as `malformed` with the reason, an id that the batch holds already as `duplicate`; an offset that the log no
    longer holds is a recorded gap. Raises InfrastructureError when the prepare budget is spent: run it again;
    OffsetGapError where the bus is not the one that the batch was planned on.
    """
    batch = work.ledger.batch(batch_id)
    if batch.state != "planned" or batch.kind != "normal":
        return
    bus = work.rules_of(batch).buses[batch.bus]
    with closing(work.open_source(bus)) as source:
        refuse_other_log(work, batch.runner, bus, source)
        landed = Landing(work, batch, bus, source).run()
    if landed:
        work.ledger.move_batch(batch_id, "planned", "buffered")


@dataclass
class _Checked:
    """What the checks of a file's messages came to, a list for each column."""

    statuses: list[str] = field(default_factory=list)
    event_ids: list[str | None] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    types: list[str | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    identities: set[bytes] = field(default_factory=set)

    def add(self, status: str, event_id: str | None, source: str | None, type_: str | None, reason: str | None) -> None:
        self.statuses.append(status)
        self.event_ids.append(event_id)
        self.sources.append(source)
        self.types.append(type_)
        self.reasons.append(reason)


@dataclass
class Landing:
    """One try of landing a batch; sub-ranges one after the other, since each must know the ids before it."""

    work: Runtime
    batch: Batch
    bus: Bus
    source: LogSource
    seen: set[bytes] = field(default_factory=set)
    recorded: dict[str, BatchFile] = field(default_factory=dict)

    def run(self) -> bool:
        """Land every range; False: the batch is not `planned` any more, somebody else was faster."""
        budget = PrepareBudget(self.work, "buffer", self.batch.batch_id)
        self._learn()
        for span in self.work.ledger.ranges(self.batch.batch_id):
            position = self._landed_until(span, span.start)
            while position < span.end:
                budget.check()
                if not self._land(span.queue, position, span.end):
                    return False
                budget.progressed()
                position = self._landed_until(span, position)
        return True

    @property
    def bus_today(self) -> Bus:
        """The bus as today's file has it: a person who was told of a deleted range answers there."""
        if self.bus.source.if_deleted == "earliest":
            return self.bus
        return self.work.rule_set().buses.get(self.bus.name, self.bus)

    def _land(self, queue: Queue, start: int, limit: int) -> bool:
        """Land and record what comes next of a queue, or learn what somebody else recorded there; False: too late."""
        rows, detail, identities = self._checked(queue, start, limit)
        path = None
        if rows.num_rows:
            path = layout.buffer(self.batch.bus, self.batch.planned_at, self.batch.batch_id, uuid.uuid4().hex)
            writer = TableWriter(self.work.store, path, ROW_GROUP_ROWS)
            writer.write(rows)
            writer.close()
        file = BatchFile(self.batch.batch_id, "buffer", _key(queue, start), path, rows.num_rows, detail)
        if self.work.ledger.record_file(file, while_state="planned"):
            self.seen |= identities
            self.recorded[file.key] = file
            return True
        self._learn()
        return file.key in self.recorded and self.work.ledger.batch(self.batch.batch_id).state == "planned"

    def take(self, queue: Queue, start: int, limit: int) -> tuple[pa.Table, int]:
        """Return what comes next of a queue as rows of schema BUFFER, landed nowhere, and up to where that goes."""
        rows, detail, identities = self._checked(queue, start, limit)
        self.seen |= identities
        return rows, detail.end

    def _checked(self, queue: Queue, start: int, limit: int) -> tuple[pa.Table, LandedRange, set[bytes]]:
        passed_over = passes_over(self.bus_today, self.source, queue, start)
        messages, end = self._read(queue, start if not passed_over else limit, limit)
        messages, refused = as_events(messages, queue, self.bus.source.mapping)
        checked = self._check(messages, refused)
        rows = _rows(queue, messages, checked, self.work.clock())
        return rows, _landed(queue, start, end, messages, checked), checked.identities

    def _read(self, queue: Queue, start: int, limit: int) -> tuple[pa.Table, int]:
        """Return the next messages, as many as fit one file, and the offset up to which that accounts for."""
        blocks: list[pa.RecordBatch] = []
        events, size = self.work.settings.buffer_range_events, FILE_MAX_BYTES
        with closing(_reading(self.source, queue, start, limit)) as reading:
            for block in reading:
                taken = _fitting(block, events, size)
                blocks.append(block.slice(0, taken))
                events -= taken
                size -= pc.sum(pc.binary_length(blocks[-1]["body"])).as_py() or 0
                if events <= 0 or size <= 0:
                    return pa.Table.from_batches(blocks), int(blocks[-1]["offset"][-1].as_py()) + 1
        return pa.Table.from_batches(blocks, schema=MESSAGES), limit

    def _check(self, messages: pa.Table, refused: Mapping[int, str]) -> _Checked:
        """Check each message: strictly a CloudEvent or not, and new in this batch or not."""
        checked = _Checked()
        limit = self.work.settings.event_max_bytes
        for row, body in enumerate(messages["body"].to_pylist()):
            if row in refused:
                checked.add("malformed", None, None, None, refused[row])
                continue
            found = recognise(body, max_bytes=limit) if body is not None else None
            if found is None:
                try:
                    event = _event(body, limit)
                except EventError as error:
                    checked.add("malformed", None, None, None, str(error))
                    continue
                found = event.id, event.source, event.type
            identity = _identity(found[1], found[0])
            status = "duplicate" if identity in checked.identities or identity in self.seen else "valid"
            checked.identities.add(identity)
            checked.add(status, *found, None)
        return checked

    def _learn(self) -> None:
        """Take over what is recorded: where each queue stands, and the ids of its valid events."""
        for file in self.work.ledger.files(self.batch.batch_id, "buffer"):
            if file.key in self.recorded:
                continue
            self.recorded[file.key] = file
            if file.path is not None:
                table = read_table(self.work.store, file.path, columns=["status", "source", "event_id"])
                valid = table.filter(pc.equal(table["status"], "valid"))
                self.seen.update(map(_identity, valid["source"].to_pylist(), valid["event_id"].to_pylist()))

    def _landed_until(self, span: Range, position: int) -> int:
        """Return the end of the recorded sub-ranges that follow one another from `position` on."""
        while (file := self.recorded.get(_key(span.queue, position))) is not None:
            assert isinstance(file.detail, LandedRange)  # only buffer records under such a key
            position = file.detail.end
        return position


def _fitting(block: pa.RecordBatch, events: int, size: int) -> int:
    """Return how many messages of a block reach the number of events or of bytes, if it has so many."""
    sizes = np.cumsum(pc.fill_null(pc.binary_length(block["body"]), 0).to_numpy(zero_copy_only=False))
    enough = int(np.searchsorted(sizes, size)) + 1
    return min(events, enough, int(block.num_rows))


def _event(body: bytes | None, max_bytes: int) -> Event:
    if body is None:
        raise EventError("the message has no body: it is a tombstone, which holds no event")
    return parse_event(body, max_bytes=max_bytes)


def _reading(source: LogSource, queue: Queue, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
    # A generator of our own: a source may give any iterator, and only generators have close().
    yield from source.read(queue, start, end)


def _key(queue: Queue, start: int) -> str:
    return f"{queue.topic}/{queue.broker}/{queue.queue_id:06d}/{start:020d}"


def _identity(source: str, event_id: str) -> bytes:
    # 16 bytes instead of the texts: a batch of half a million events must fit into the memory of one task.
    text = f"{len(source)}:{source}{event_id}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _rows(queue: Queue, messages: pa.Table, checked: _Checked, arrived_at: datetime) -> pa.Table:
    """Return messages as rows of schema BUFFER, texts coded where many are the same."""
    count = messages.num_rows
    place = "-".join(str(part) for part in queue if part != "")
    columns = {
        "topic": same(queue.topic, count),
        "broker": same(queue.broker, count),
        "queue_id": column_of(np.full(count, queue.queue_id), pa.int32()),
        "offset": messages["offset"],
        "message_id": pc.binary_join_element_wise(place, messages["offset"].cast(pa.string()), "-"),
        "published_at": messages["published_at"],
        "arrived_at": times(np.full(count, time_code(arrived_at))),
        "status": listed(checked.statuses),
        "reason": listed(checked.reasons),
        "event_id": strings(checked.event_ids),
        "source": listed(checked.sources),
        "type": listed(checked.types),
        "body": messages["body"].fill_null(b""),
    }
    return pa.Table.from_arrays([columns[name] for name in BUFFER.names], schema=_BUFFER)


def _landed(queue: Queue, start: int, end: int, messages: pa.Table, checked: _Checked) -> LandedRange:
    counts = Counter(checked.statuses)
    edges = np.concatenate(([start - 1], numbers_of(messages["offset"]), [end]))
    holes = np.flatnonzero(np.diff(edges) > 1)
    return LandedRange(
        queue=queue,
        start=start,
        end=end,
        read=messages.num_rows,
        valid=counts["valid"],
        duplicate=counts["duplicate"],
        malformed=counts["malformed"],
        size=pc.sum(pc.binary_length(messages["body"])).as_py() or 0,
        gaps=tuple(zip((edges[holes] + 1).tolist(), edges[holes + 1].tolist(), strict=True)),
    )
