"""Stage buffer: reads the batch's ranges, checks each message and lands it in the store: the archive."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eventbridge.errors import EventError
from eventbridge.event import parse_event
from eventbridge.ledger.records import Batch, BatchFile, Range
from eventbridge.queue import Queue
from eventbridge.sources.protocol import LogSource, Message
from eventbridge.stages.budget import PrepareBudget
from eventbridge.stages.bus_guard import refuse_other_log
from eventbridge.stages.workplace import Workplace
from eventbridge.store import layout
from eventbridge.store.parquet import read_table, write_table
from eventbridge.store.schemas import BUFFER

#: Rows per row group: what route reads at a time, and where its slices may begin.
ROW_GROUP_ROWS = 2_000

#: Bytes of messages per landed file: with large events this bounds the memory, not the number of events.
FILE_MAX_BYTES = 16 << 20


def buffer(work: Workplace, batch_id: str) -> None:
    """Land what is not landed yet of a planned batch, then move it to `buffered`; later calls do nothing.

    Each finished sub-range is recorded, so a run that dies loses one of them. A message that is no CloudEvent is
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
        landed = _Landing(work, batch, source).run()
    if landed:
        work.ledger.move_batch(batch_id, "planned", "buffered")


@dataclass
class _Landing:
    """One try of landing a batch; sub-ranges one after the other, since each must know the ids before it."""

    work: Workplace
    batch: Batch
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

    def _land(self, queue: Queue, start: int, limit: int) -> bool:
        """Land and record what comes next of a queue, or learn what somebody else recorded there; False: too late."""
        messages, end = self._read(queue, start, limit)
        rows, ids = self._check(messages)
        path = None
        if rows:
            path = layout.buffer(self.batch.bus, self.batch.planned_at, self.batch.batch_id, uuid.uuid4().hex)
            table = pa.Table.from_pylist(rows, schema=BUFFER)
            write_table(self.work.store, path, table, row_group_rows=ROW_GROUP_ROWS)
        detail = _detail(queue, start, end, rows)
        file = BatchFile(self.batch.batch_id, "buffer", _key(queue, start), path, len(rows), detail)
        if self.work.ledger.record_file(file, while_state="planned"):
            self.seen |= ids
            self.recorded[file.key] = file
            return True
        self._learn()
        return file.key in self.recorded and self.work.ledger.batch(self.batch.batch_id).state == "planned"

    def _read(self, queue: Queue, start: int, limit: int) -> tuple[list[Message], int]:
        """Return the next messages, as many as fit one file, and the offset up to which that accounts for."""
        messages: list[Message] = []
        size = 0
        with closing(_reading(self.source, queue, start, limit)) as reading:
            for message in reading:
                messages.append(message)
                size += len(message.body)
                if len(messages) >= self.work.settings.buffer_range_events or size >= FILE_MAX_BYTES:
                    return messages, message.offset + 1
        return messages, limit

    def _check(self, messages: list[Message]) -> tuple[list[dict[str, Any]], set[bytes]]:
        arrived_at = self.work.clock()
        ids: set[bytes] = set()
        rows = []
        for message in messages:
            row = _row(message) | {"arrived_at": arrived_at}
            try:
                event = parse_event(message.body, max_bytes=self.work.settings.event_max_bytes)
            except EventError as error:
                rows.append(row | {"status": "malformed", "reason": str(error)})
                continue
            identity = _identity(event.source, event.id)
            status = "duplicate" if identity in ids or identity in self.seen else "valid"
            ids.add(identity)
            rows.append(row | {"status": status, "event_id": event.id, "source": event.source, "type": event.type})
        return rows, ids

    def _learn(self) -> None:
        """Take over what is recorded: where each queue stands, and the ids of its valid events."""
        for file in self.work.ledger.files(self.batch.batch_id, "buffer"):
            if file.key in self.recorded:
                continue
            self.recorded[file.key] = file
            if file.path is not None:
                table = read_table(self.work.store, file.path, columns=["status", "source", "event_id"])
                for row in table.to_pylist():
                    if row["status"] == "valid":
                        self.seen.add(_identity(row["source"], row["event_id"]))

    def _landed_until(self, span: Range, position: int) -> int:
        """Return the end of the recorded sub-ranges that follow one another from `position` on."""
        while (file := self.recorded.get(_key(span.queue, position))) is not None:
            position = int(file.detail["end"])
        return position


def _reading(source: LogSource, queue: Queue, start: int, end: int) -> Generator[Message, None, None]:
    # A generator of our own: a source may give any iterator, and only generators have close().
    yield from source.read(queue, start, end)


def _key(queue: Queue, start: int) -> str:
    return f"{queue.topic}/{queue.broker}/{queue.queue_id:06d}/{start:020d}"


def _identity(source: str, event_id: str) -> bytes:
    # 16 bytes instead of the texts: a batch of half a million events must fit into the memory of one task.
    text = f"{len(source)}:{source}{event_id}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _row(message: Message) -> dict[str, Any]:
    return {
        "topic": message.queue.topic,
        "broker": message.queue.broker,
        "queue_id": message.queue.queue_id,
        "offset": message.offset,
        "message_id": message.message_id,
        "published_at": message.published_at,
        "body": message.body,
    }


def _detail(queue: Queue, start: int, end: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    counts = dict.fromkeys(("valid", "duplicate", "malformed"), 0)
    gaps: list[list[int]] = []
    position = start
    for row in rows:
        counts[row["status"]] += 1
        if row["offset"] > position:
            gaps.append([position, row["offset"]])
        position = row["offset"] + 1
    if position < end:
        gaps.append([position, end])
    return {
        **queue._asdict(),
        "start": start,
        "end": end,
        "read": len(rows),
        **counts,
        "bytes": sum(len(row["body"]) for row in rows),
        "gaps": gaps,
    }
