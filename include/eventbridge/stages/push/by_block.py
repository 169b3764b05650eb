"""Deliveries that go to their target by the thousand, where it takes them so and none needs to be treated apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from eventbridge.decision.answer_to_outcome import expired
from eventbridge.model.answer import Answer
from eventbridge.model.chunk import Piece
from eventbridge.stages.push.flush import flush, must_flush, not_flushed
from eventbridge.stages.push.pending import Item, Values, items_of
from eventbridge.stages.push.rows import OutcomeRow, OutcomeRows, accepted_row, accepted_rows, alike_table
from eventbridge.stages.push.run import Send, TargetRun
from eventbridge.stages.push.singly import Rounds
from eventbridge.stages.push.steps import Steps
from eventbridge.targets.protocol import BlockTarget, Target, takes_blocks

#: Fewer rows are cheaper one by one: a table costs as much as to make some fifty of them.
_FEW = 50


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
        return items_of(
            Values(pa.Table.from_batches([self.rows])).rows(0, self.rows.num_rows), self.piece, {}, self.first
        )

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


class BlockDeliveries:
    """Blocks of one target that has no pace to keep, no window, and is well.

    What a block target does not take, or is too old, and all of a target that takes no blocks, goes on one by one.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.total = sum(block.rows.num_rows for block in blocks)
        self._blocks = list(blocks)
        self._taken: list[tuple[Block, Answer]] = []

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send blocks as long as it can be done so, and the rest one by one."""
        rest = Rounds(run, send, ())
        if takes_blocks(send.target):
            self._deliver_blocks(run, send.target, rest)
        blocks, self._blocks = self._blocks, []
        rest.take_up(item for block in blocks for item in block.items())
        yield from rest.deliver()

    def _deliver_blocks(self, run: TargetRun, target: BlockTarget, rest: Rounds) -> None:
        refused = False
        policy, clock = run.settings.policy, run.clock
        while self._blocks and not refused and not _must_end(run):
            block = self._blocks[0]
            if expired(policy, block.oldest, block.piece.held_seconds, clock()) is not None:
                break
            start = 0
            with closing(target.deliver_block(block.rows["payload"], run.until)) as answers:
                for end, answer in answers:
                    self._taken.append((block.part(start, end), answer))
                    run.presence.answered(answer, again=False)
                    run.report.sent += end - start
                    start = end
                    refused = not answer.accepted
                    waiting = sum(taken.rows.num_rows for taken, _ in self._taken)
                    if must_flush(target, waiting, self._taken[0][1], answer):
                        self._settle_taken(run, target, rest)
                    if refused or _must_end(run):
                        break
            self._blocks[:1] = [block.part(start, block.rows.num_rows)] if start < block.rows.num_rows else []
            if start == 0:
                break
        self._settle_taken(run, target, rest)

    def _settle_taken(self, run: TargetRun, target: Target, rest: Rounds) -> None:
        taken, self._taken = self._taken, []
        lost = flush(target) if taken else None
        good = [(block, answer) for block, answer in taken if answer.accepted and lost is None]
        if good:
            count = sum(block.rows.num_rows for block, _ in good)
            run.breaker.accepted(count, run.clock())
            run.report.delivered += count
            _put_accepted(run.settings.rows, good, count)
        for block, answer in taken:
            if lost is not None or not answer.accepted:
                rest.decide_all(block.items(), answer if lost is None else not_flushed(answer, lost))


def _must_end(run: TargetRun) -> bool:
    return run.stop_asked or run.closed or run.clock() >= run.until


def _put_accepted(rows: OutcomeRows, good: Sequence[tuple[Block, Answer]], count: int) -> None:
    """Put the rows of blocks that were accepted, `count` deliveries in all."""
    taken = [(block.rows["delivery_id"], _row_like(block.piece, answer)) for block, answer in good]
    if count < _FEW:
        for ids, like in taken:
            rows.put_all(accepted_rows(ids.to_pylist(), like))
    else:
        rows.put_table(pa.concat_tables(alike_table(ids, like) for ids, like in taken))


def _row_like(piece: Piece, answer: Answer) -> OutcomeRow:
    return accepted_row(piece.rule, piece.target, piece.attempts + 1, answer)
