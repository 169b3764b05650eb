"""Sends deliveries in blocks to a target that takes blocks, if no delivery needs separate handling.

A block holds adjacent deliveries of a piece, often thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery.live import IDLE, LiveQueue
from eventbridge.delivery.outstanding import ITEM_COLUMNS, Item, ItemValues, ReadPiece, items_of
from eventbridge.delivery.per_delivery import Rounds
from eventbridge.delivery.rows import OutcomeRow, OutcomeRows, accepted_row, accepted_rows, alike_table
from eventbridge.delivery.run import SLEEP_SECONDS, Send, TargetRun
from eventbridge.delivery.steps import Sleep, Steps, flush_in_turn, must_flush, not_flushed
from eventbridge.model.chunk import Piece
from eventbridge.model.outcome import Response
from eventbridge.policy.response_to_outcome import expired
from eventbridge.targets.protocol import BlockTarget, Target, takes_blocks

#: The minimum number of outcome rows to add as a table. Creating a table takes as long as adding about fifty single
#: rows.
_MIN_TABLE_ROWS = 50


class BlockDeliveries:
    """Sends the blocks of one target whose status is `ok` and that has neither a rate limit nor a delivery window.

    If the target rejects a block, if deliveries are too old, or if the target takes no blocks, the deliveries are
    handled one by one.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.total = sum(block.count for block in blocks)
        self._blocks = list(blocks)
        self._taken: list[tuple[Block, Response]] = []

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send blocks for as long as possible, and then the rest one by one."""
        rest = Rounds(run, send, ())
        if takes_blocks(send.target):
            yield from self._deliver_blocks(run, send.target, rest)
        blocks, self._blocks = self._blocks, []
        rest.take_up(item for block in blocks for item in block.items())
        yield from rest.deliver()

    def _deliver_blocks(self, run: TargetRun, target: BlockTarget, rest: Rounds) -> Steps[None]:
        refused = False
        policy, clock = run.settings.policy, run.clock
        while self._blocks and not refused and not run.must_end(run.clock()):
            block = self._blocks[0]
            if expired(policy, block.oldest, block.piece.on_hold_seconds, clock()) is not None:
                break
            start = 0
            with closing(target.deliver_block(block.delivery_ids, block.payloads, run.until)) as responses:
                for end, response in responses:
                    self._taken.append((block.part(start, end), response))
                    run.note_duration(response, deliveries=end - start)
                    run.report.sent += end - start
                    start = end
                    refused = not response.accepted
                    waiting = sum(taken.count for taken, _ in self._taken)
                    if must_flush(target, waiting, self._taken[0][1], response):
                        yield from self._settle_taken(run, target, rest)
                    if refused or run.must_end(run.clock()):
                        break
            self._blocks[:1] = [block.part(start, block.count)] if start < block.count else []
            if start == 0:
                break
        yield from self._settle_taken(run, target, rest)

    def _settle_taken(self, run: TargetRun, target: Target, rest: Rounds) -> Steps[None]:
        taken, self._taken = self._taken, []
        if not taken:
            return
        lost = yield from flush_in_turn(target, sum(block.count for block, _ in taken))
        good = [(block, response) for block, response in taken if response.accepted and lost is None]
        if good:
            count = sum(block.count for block, _ in good)
            run.breaker.record_accepted(count, run.clock())
            run.report.delivered += count
            _put_accepted(run.settings.rows, good, count)
        for block, response in taken:
            if lost is not None or not response.accepted:
                rest.decide_all(block.items(), response if lost is None else not_flushed(response, lost))


def _put_accepted(rows: OutcomeRows, good: Sequence[tuple[Block, Response]], count: int) -> None:
    """Add the outcome rows of accepted blocks, which have `count` deliveries in total."""
    taken = [(block, _row_like(block.piece, response)) for block, response in good]
    if count < _MIN_TABLE_ROWS:
        for block, like in taken:
            rows.put_all(accepted_rows(block.delivery_ids.to_pylist(), like))
    else:
        rows.put_table(pa.concat_tables(alike_table(block.delivery_ids, like) for block, like in taken))


def _row_like(piece: Piece, response: Response) -> OutcomeRow:
    return accepted_row(piece.rule, piece.target, piece.attempts + 1, response)


class LiveBlocks:
    """Sends deliveries from a queue as blocks.

    Deliveries that arrive while one block is being synced form the next block. The run ends after a delivery that could
    not be delivered, or before a piece that blocks cannot hold; another run then takes the rest of the queue.
    """

    total = 0

    def __init__(self, queue: LiveQueue) -> None:
        self._queue = queue

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send deliveries as they arrive until the run is idle, its budget is spent, or it must end."""
        busy_at = run.clock()
        while run.pace.is_unlimited and not run.must_end(run.clock()):
            blocks = self._take()
            if blocks:
                run.report.total += sum(block.count for block in blocks)
                yield from BlockDeliveries(blocks).deliver(run, send)
                if run.report.delivered < run.report.total:
                    return
                busy_at = run.clock()
            elif self._queue or self._is_over(run.clock(), busy_at):
                return
            else:
                yield Sleep(SLEEP_SECONDS, self._queue.notified)
                self._queue.notified.clear()

    def _take(self) -> list[Block]:
        """Take the waiting pieces up to the first that blocks cannot hold."""
        found: list[Block] = []
        while (piece := self._queue.take()) is not None:
            blocks = blocks_of(piece)
            if blocks is None:
                self._queue.put_back(piece)
                break
            found += blocks
        return found

    def _is_over(self, now: datetime, busy_at: datetime) -> bool:
        return self._queue.ends or now - busy_at >= IDLE


#: The minimum number of rows to handle as Arrow columns. For fewer rows, Python values, which the pieces of one file
#: share, are faster, because one Arrow call takes as long as a few rows.
_MIN_ARROW_ROWS = 16
_COLUMN_NUMBER = {name: number for number, name in enumerate(ITEM_COLUMNS)}
_ID, _ARRIVED_AT, _PAYLOAD, _FAILURE, _NOT_BEFORE = (
    _COLUMN_NUMBER[name] for name in ("delivery_id", "arrived_at", "payload", "failure", "not_before")
)


class Block(Protocol):
    """A block of `count` adjacent deliveries."""

    @property
    def piece(self) -> Piece:
        """The piece that the deliveries belong to."""

    @property
    def count(self) -> int:
        """The number of deliveries."""

    @property
    def delivery_ids(self) -> pa.Array:
        """The delivery ids, 16 bytes each."""

    @property
    def payloads(self) -> pa.Array:
        """The payloads to send."""

    @property
    def oldest(self) -> datetime:
        """The time from which the age of the oldest delivery is measured."""

    def part(self, start: int, end: int) -> Block:
        """Return the block of the deliveries from `start` up to, but not including, `end`."""

    def items(self) -> Iterator[Item]:
        """Yield the deliveries one by one."""


@dataclass(frozen=True)
class ManyRows:
    """A block with the Arrow columns `ITEM_COLUMNS`; `first` is the number of the first request."""

    piece: Piece
    rows: pa.RecordBatch
    first: int

    @property
    def count(self) -> int:
        """The number of deliveries."""
        return int(self.rows.num_rows)

    @property
    def delivery_ids(self) -> pa.Array:
        """The delivery ids, 16 bytes each."""
        return self.rows["delivery_id"]

    @property
    def payloads(self) -> pa.Array:
        """The payloads to send."""
        return self.rows["payload"]

    @property
    def oldest(self) -> datetime:
        """The time from which the age of the oldest delivery is measured."""
        found: datetime = pc.min(self.rows["arrived_at"]).as_py()
        return found

    def part(self, start: int, end: int) -> ManyRows:
        """Return the block of the deliveries from `start` up to, but not including, `end`."""
        return ManyRows(self.piece, self.rows.slice(start, end - start), self.first + start)

    def items(self) -> Iterator[Item]:
        """Yield the deliveries one by one."""
        values = ItemValues(pa.Table.from_batches([self.rows]))
        return items_of(values.rows(0, self.rows.num_rows), self.piece, {}, self.first)


@dataclass(frozen=True)
class FewRows:
    """A block of rows with the Python values of `ITEM_COLUMNS`; `first` is the number of the first request."""

    piece: Piece
    rows: Sequence[tuple[Any, ...]]
    first: int

    @property
    def count(self) -> int:
        """The number of deliveries."""
        return len(self.rows)

    @cached_property
    def delivery_ids(self) -> pa.Array:
        """The delivery ids, 16 bytes each."""
        return pa.array([row[_ID] for row in self.rows], pa.binary(16))

    @property
    def payloads(self) -> pa.Array:
        """The payloads to send."""
        return pa.array([row[_PAYLOAD] for row in self.rows], pa.binary())

    @property
    def oldest(self) -> datetime:
        """The time from which the age of the oldest delivery is measured."""
        found: datetime = min(row[_ARRIVED_AT] for row in self.rows)
        return found

    def part(self, start: int, end: int) -> FewRows:
        """Return the block of the deliveries from `start` up to, but not including, `end`."""
        if end - start == len(self.rows):
            return self
        return FewRows(self.piece, self.rows[start:end], self.first + start)

    def items(self) -> Iterator[Item]:
        """Yield the deliveries one by one."""
        return items_of(self.rows, self.piece, {}, self.first)


def blocks_of(read: ReadPiece) -> Sequence[Block] | None:
    """Return a piece as blocks; None if rows must be handled individually because they failed or may have to wait."""
    if read.count < _MIN_ARROW_ROWS:
        rows = list(read.each())
        if any(row[_FAILURE] is not None or row[_NOT_BEFORE] is not None for row in rows):
            return None
        return [FewRows(read.piece, rows, read.first)] if rows else []
    table = read.rows
    if table["failure"].null_count < len(table) or table["not_before"].null_count < len(table):
        return None
    blocks, first = [], read.first
    for batch in table.to_batches():
        blocks.append(ManyRows(read.piece, batch, first))
        first += batch.num_rows
    return blocks
