"""Keeps the messages that queues hand out in an inbox, a log that every stage reads by offset.

The files are in the store, and their records are in the ledger. A message is acknowledged once its file is durable and
recorded. If the process dies before that, the queue still has the message. If it dies between the record and the
acknowledgement, the queue hands out the message again, and the inbox recognises the message by its id.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge import fault_points
from eventbridge.errors import BusError, EventBridgeError, OffsetGapError
from eventbridge.ledger import Ledger
from eventbridge.model.partition import Partition
from eventbridge.model.storage import InboxFile
from eventbridge.sources.messages import MESSAGES, RECEIVED, STORED
from eventbridge.sources.protocol import QueueSource
from eventbridge.store import layout
from eventbridge.store.parquet import read_table, write_table
from eventbridge.store.protocol import Store

log = logging.getLogger(__name__)

#: The maximum number of messages and bytes in one file. They limit the memory used, and the number of messages that are
#: handed out again after a crash.
_FILE_EVENTS: Final = 10_000
_FILE_BYTES: Final = 16 << 20
_ROW_GROUP_ROWS: Final = 2_000
_BLOCK_ROWS: Final = 2_000

#: An offset greater than all others.
_NO_END: Final = (1 << 63) - 1

#: The maximum duration of one `take_in`. The `take_in` of the next batch continues.
_TAKING_SECONDS: Final = 15.0

#: The interval at which messages are taken over, into one file each time, while the inbox is followed.
_FOLLOWING_SECONDS: Final = 1.0
#: The number of unread messages at which taking over is suspended.
_AHEAD_EVENTS: Final = 20_000


class Inbox:
    """A log source with one partition (0) for each topic, in which messages are in the order of their arrival.

    `take_in` fills it. A partition's end in `ends` includes an estimate of the number of messages that are still in the
    queue. When an offset is looked up by time, the time of a message is when its file was recorded.
    """

    kind: Literal["log"] = "log"
    #: The number of seconds for which a caller that polls several times a second may reuse the result of `ends`.
    ends_valid_seconds = 1.0

    def __init__(self, bus: str, sources: Mapping[str, QueueSource], ledger: Ledger, store: Store) -> None:
        self._bus = bus
        self._sources = sources
        self._ledger = ledger
        self._store = store
        self._taking: threading.Thread | None = None  # set while the inbox is followed
        self._closed = threading.Event()
        self._read_to: dict[Partition, int] = {}
        self._ends: Mapping[Partition, int] = {}
        self._failed: EventBridgeError | None = None

    @property
    def uri(self) -> str:
        """Return the URIs of the queues."""
        return ", ".join(source.uri for source in self._sources.values())

    def identities(self) -> Mapping[str, str]:
        """Return an empty mapping, because an inbox belongs to the ledger, and a lost ledger is detected elsewhere."""
        return {}

    def partitions(self) -> Sequence[Partition]:
        """Return the one partition of each topic."""
        return [Partition(topic, "", 0) for topic in sorted(self._sources)]

    def earliest(self, partition: Partition) -> int:
        """Return the first offset that the inbox has, or the end offset if the inbox is empty."""
        return self._ledger.inbox.ends(self._bus, self._topic(partition))[0]

    def end(self, partition: Partition) -> int:
        """Return the offset up to which the inbox can be read."""
        return self._ledger.inbox.ends(self._bus, self._topic(partition))[1]

    def ends(self) -> Mapping[Partition, int]:
        """Return the end of each partition, plus an estimate of how many messages are still waiting in its queue.

        While the inbox is followed, only messages that have been taken over count. If taking them over has failed,
        this raises the error once.
        """
        if self._taking is not None:
            error, self._failed = self._failed, None
            if error is not None:
                raise error
            return self._ends
        return {
            partition: self.end(partition) + self._sources[partition.topic].waiting() for partition in self.partitions()
        }

    def offset_at(self, partition: Partition, at: datetime) -> int:
        """Return the offset of the first message recorded at or after the aware time `at`, or the end if none was."""
        found = self._ledger.inbox.offset_at(self._bus, self._topic(partition), at)
        return self.end(partition) if found is None else found

    def read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the messages with start <= offset < end, in order, as blocks of the MESSAGES schema.

        The call itself raises OffsetGapError if `end` is beyond the end of the inbox.
        """
        if end > (last := self.end(partition)):
            raise OffsetGapError(
                f"The inbox of the bus {self._bus!r} has {partition.topic} up to offset {last}, but "
                f"{start} to {end} were requested: the ledger has lost records. Restore the ledger of this store"
            )
        self._read_to[partition] = max(end, self._read_to.get(partition, end))
        return self._read(partition, start, end)

    def committed(self, group: str) -> Mapping[Partition, int]:
        """Return an empty mapping, because a queue has no offsets."""
        return {}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Do nothing, because messages in the inbox are already acknowledged."""

    def trim(self, before: datetime, keep: Mapping[Partition, int] | None = None) -> int:
        """Remove the files that were stored before the aware time `before`, and return how many messages they had.

        If a partition is in `keep`, no message at or after its offset in `keep` is removed. The newest file of a topic
        is never removed.
        """
        removed = 0
        for partition in self.partitions():
            last = (keep or {}).get(partition, self.end(partition))
            gone = self._ledger.inbox.files_below(self._bus, partition.topic, last, before)
            if gone:
                self._store.delete_all([file.path for file in gone])
                self._ledger.inbox.drop(self._bus, partition.topic, gone[-1].end)
            removed += sum(file.end - file.start for file in gone)
        return removed

    def lost_files(self, before: datetime) -> list[str]:
        """Return the files of days before the aware time `before` that no record in the ledger names.

        Their writer died before it recorded them, so their messages were not acknowledged, and were handed out again.
        """
        found: list[str] = []
        for topic in sorted(self._sources):
            first_kept = layout.inbox(self._bus, topic, before, "").removesuffix(".parquet")
            paths = [path for path in self._store.list(layout.inbox_of_topic(self._bus, topic)) if path < first_kept]
            named = {file.path for file in self._ledger.inbox.files(self._bus, topic, 0, _NO_END)} if paths else set()
            found += [path for path in paths if path not in named]
        return found

    def take_in(self, limit: int) -> int:
        """Take over up to `limit` messages from the queues, in equal shares, and return how many of them were new.

        Raises BusError if a queue does not respond. Messages that were recorded before stay in the inbox.
        """
        began, taken = time.monotonic(), 0
        share = -(-limit // len(self._sources))
        for topic, source in sorted(self._sources.items()):
            left = min(share, limit - taken)
            known = self._known_ids(topic, source) if left > 0 else _KnownMessages(0)
            while left > 0 and time.monotonic() - began < _TAKING_SECONDS:
                fresh, has_received = self._take_in(topic, source, min(left, _FILE_EVENTS), known)
                if not has_received:
                    break
                left -= fresh
                taken += fresh
        return taken

    def follow(self, positions: Mapping[Partition, int]) -> None:
        """Take over messages in a thread, as they arrive, until the inbox is closed.

        The caller reads from `positions` on.
        """
        self._read_to = dict(positions)
        self._ends = {partition: self.end(partition) for partition in self.partitions()}
        if self._taking is None:
            self._taking = threading.Thread(target=self._follow_queues, name="inbox", daemon=True)
            self._taking.start()

    def _follow_queues(self) -> None:
        while not self._closed.wait(_FOLLOWING_SECONDS):
            try:
                ahead = sum(end - self._read_to.get(partition, end) for partition, end in self._ends.items())
                if (
                    ahead < _AHEAD_EVENTS
                    and self._ledger.ingestion.current_stop() is None
                    and self.take_in(_FILE_EVENTS)
                ):
                    self._ends = {partition: self.end(partition) for partition in self.partitions()}
            except EventBridgeError as error:
                self._failed = error

    def close(self) -> None:
        """Close the queues."""
        self._closed.set()
        if self._taking is not None:
            self._taking.join()
        with ExitStack() as stack:
            for source in self._sources.values():
                stack.enter_context(closing(source))

    def _take_in(self, topic: str, source: QueueSource, at_most: int, known: _KnownMessages) -> tuple[int, bool]:
        """Take over one file of messages. Return how many were new, and whether the queue had any."""
        table = _receive_file(source, at_most)
        if not table.num_rows:
            return 0, False
        with _ReceivedMessages(source, table["receipt"].to_pylist()) as received:
            file = self._record_file(topic, table, known)
            fresh = 0 if file is None else file.end - file.start
            if again := table.num_rows - fresh:
                log.info("%s handed out messages of %s that are already in the inbox: %d", source.uri, topic, again)
                self._ledger.inbox.count_repeats(self._bus, topic, again)
        source.acknowledge(received.receipts)
        if file is not None:
            self._ledger.inbox.mark_acknowledged(file)
        return fresh, True

    def _record_file(self, topic: str, table: pa.Table, known: _KnownMessages) -> InboxFile | None:
        """Write and record the messages that are not in `known`, and add their ids. Return the file, or None if there
        were no such messages.

        If this process was suspended for longer than the messages were invisible, another process may have recorded
        them.
        """
        while (fresh := _unknown_messages(table, known.ids)).num_rows:
            path = layout.inbox(self._bus, topic, self._ledger.now(), uuid.uuid4().hex)
            write_table(self._store, path, fresh, _ROW_GROUP_ROWS, schema=STORED)
            file = self._ledger.inbox.record(self._bus, topic, path, fresh.num_rows, start=known.until)
            if file is not None:
                known.ids.update(fresh["message_id"].to_pylist())
                known.until = file.end
                return file
            self._store.delete(path)
            for other in self._ledger.inbox.files(self._bus, topic, known.until, _NO_END):
                self._add_known(other, known)
        return None

    def _known_ids(self, topic: str, source: QueueSource) -> _KnownMessages:
        """Return the ids of the messages in the inbox that the queue may hand out again.

        They are in files that are not known to be acknowledged, and in recent files, because an acknowledgement may
        have come too late or may have been lost with a process of the queue.
        """
        known = _KnownMessages(self._ledger.inbox.ends(self._bus, topic)[1])
        since = self._ledger.now() - timedelta(seconds=2 * source.visibility_timeout)
        for file in self._ledger.inbox.files_to_expect_again(self._bus, topic, since):
            self._add_known(file, known)
        return known

    def _add_known(self, file: InboxFile, known: _KnownMessages) -> None:
        known.ids.update(read_table(self._store, file.path, ["message_id"])["message_id"].to_pylist())
        known.until = max(known.until, file.end)

    def _read(self, partition: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        fault_points.reach("bus.read")
        for file in self._ledger.inbox.files(self._bus, partition.topic, start, end):
            table = read_table(self._store, file.path)
            table = table.append_column(MESSAGES.field("offset"), pa.array(range(file.start, file.end), pa.int64()))
            first, last = max(start, file.start), min(end, file.end)
            wanted = table.select(MESSAGES.names).slice(first - file.start, last - first).cast(MESSAGES)
            yield from wanted.combine_chunks().to_batches(max_chunksize=_BLOCK_ROWS)

    def _topic(self, partition: Partition) -> str:
        if partition not in self.partitions():
            raise BusError(f"{self.uri}: the partition {partition.topic}/{partition.partition_id} is not open")
        return partition.topic


@dataclass
class _KnownMessages:
    """The ids of messages in the inbox that may be handed out again, from the files up to the offset `until`."""

    until: int
    ids: set[str] = field(default_factory=set)


def _receive_file(source: QueueSource, at_most: int) -> pa.Table:
    """Return messages for one file: those that the queue has ready, received within a quarter of its timeout.

    The timeout is the visibility timeout of the messages.
    """
    began, size = time.monotonic(), 0
    blocks: list[pa.RecordBatch] = []
    left = at_most
    while left > 0 and size < _FILE_BYTES and time.monotonic() - began < source.visibility_timeout / 4:
        block = source.receive(left)
        if not block.num_rows:
            break
        blocks.append(block)
        left -= block.num_rows
        size += pc.sum(pc.binary_length(block["body"])).as_py() or 0
    return pa.Table.from_batches(blocks, schema=RECEIVED)


def _unknown_messages(table: pa.Table, known: set[str]) -> pa.Table:
    """Return the messages whose ids are not in `known`, each once, without their receipts."""
    seen = set(known)
    rows = []
    for row, message_id in enumerate(table["message_id"].to_pylist()):
        if message_id not in seen:
            seen.add(message_id)
            rows.append(row)
    return table.select(STORED.names).take(pa.array(rows, pa.int64()))


class _ReceivedMessages:
    """Extends the visibility timeout of messages while the block runs, so that no other consumer gets them."""

    def __init__(self, source: QueueSource, receipts: Sequence[str]) -> None:
        self.receipts = list(receipts)  # the receipts that are still valid, to be read after the block
        self._source = source
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._extend, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def _extend(self) -> None:
        while not self._done.wait(self._source.visibility_timeout / 3):
            try:
                self.receipts = self._source.extend(self.receipts)
            except BusError as error:  # a message that is handed out again is recognised by its id
                log.warning("the queue may hand out received messages again: %s", error)
