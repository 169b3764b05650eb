"""A run that hands its target payloads by the thousand, where it takes them so and none needs to be treated apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.delivery import Answer, expired
from eventbridge.ledger.records import Piece
from eventbridge.stages.flushed import flush, must_flush, not_flushed
from eventbridge.stages.items import Item, items_of
from eventbridge.stages.outcome_rows import accepted_table
from eventbridge.stages.target_run import TargetRun
from eventbridge.targets.protocol import BlockTarget, Target


@dataclass(frozen=True)
class Block:
    """Deliveries of a piece that lie side by side: their `ITEM_COLUMNS`, and the number of the first one's request."""

    piece: Piece
    rows: pa.RecordBatch
    first: int

    def part(self, start: int, end: int) -> Block:
        """Return the deliveries from `start` to `end`, which is excluded."""
        return Block(self.piece, self.rows.slice(start, end - start), self.first + start)

    def items(self) -> Iterator[Item]:
        """Yield them one by one."""
        return items_of(pa.Table.from_batches([self.rows]), self.piece, {}, self.first)

    @property
    def oldest(self) -> datetime:
        """When the age of the oldest began."""
        found: datetime = pc.min(self.rows["arrived_at"]).as_py()
        return found


def blocks_of(rows: pa.Table, piece: Piece, first: int) -> list[Block] | None:
    """Return rows of a piece as blocks; None if one of them must be looked at by itself: it failed, or may wait."""
    if rows["failure"].null_count < len(rows) or rows["not_before"].null_count < len(rows):
        return None
    blocks = []
    for batch in rows.to_batches():
        blocks.append(Block(piece, batch, first))
        first += batch.num_rows
    return blocks


class BlockRun(TargetRun):
    """Delivers blocks of one target that has no pace to keep, no window, and is well.

    What a block target does not take, or is too old, and all of a target that takes no blocks, goes on one by one.
    """

    def __init__(self, rule: str, target: str, blocks: Sequence[Block], **options: Any) -> None:
        super().__init__(rule, target, (), **options)
        self._blocks = list(blocks)
        self._taken: list[tuple[Block, Answer]] = []
        self.report.total = sum(block.rows.num_rows for block in blocks)

    def _deliver_all(self, target: Target) -> None:
        if isinstance(target, BlockTarget):
            self._deliver_blocks(target)
        blocks, self._blocks = self._blocks, []
        self._take_up(item for block in blocks for item in block.items())
        super()._deliver_all(target)

    def _deliver_blocks(self, target: BlockTarget) -> None:
        refused = False
        while self._blocks and not refused and not self._must_end():
            block = self._blocks[0]
            if expired(self._policy, block.oldest, block.piece.held_seconds, self._clock()) is not None:
                break
            start = 0
            with closing(target.deliver_block(block.rows["payload"], self._until)) as answers:
                for end, answer in answers:
                    self._taken.append((block.part(start, end), answer))
                    self.presence.answered(answer, again=False)
                    self.report.sent += end - start
                    start = end
                    refused = not answer.accepted
                    waiting = sum(taken.rows.num_rows for taken, _ in self._taken)
                    if must_flush(target, waiting, self._taken[0][1], answer):
                        self._settle_taken(target)
                    if refused or self._must_end():
                        break
            self._blocks[:1] = [block.part(start, block.rows.num_rows)] if start < block.rows.num_rows else []
            if start == 0:
                break
        self._settle_taken(target)

    def _must_end(self) -> bool:
        return self._stop_asked.is_set() or self._closed() or self._clock() >= self._until

    def _settle_taken(self, target: Target) -> None:
        taken, self._taken = self._taken, []
        lost = flush(target) if taken else None
        good = [(block, answer) for block, answer in taken if answer.accepted and lost is None]
        if good:
            count = sum(block.rows.num_rows for block, _ in good)
            self.breaker.accepted(count, self._clock())
            self.report.delivered += count
            self._rows.put_table(pa.concat_tables(_table(block, answer) for block, answer in good))
        for block, answer in taken:
            if lost is not None or not answer.accepted:
                items = list(block.items())
                self._number(items)
                for item in items:
                    self._decide(item, answer if lost is None else not_flushed(answer, lost))


def _table(block: Block, answer: Answer) -> pa.Table:
    piece = block.piece
    return accepted_table(block.rows["delivery_id"], piece.rule, piece.target, piece.attempts + 1, answer)
