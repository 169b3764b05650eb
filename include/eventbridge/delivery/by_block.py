"""Deliveries that go to their target in blocks, if the target takes blocks and no delivery needs separate handling."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pyarrow as pa

from eventbridge.delivery.blocks import Block
from eventbridge.delivery.flush import flush_in_turn, must_flush, not_flushed
from eventbridge.delivery.per_delivery import Rounds
from eventbridge.delivery.rows import OutcomeRow, OutcomeRows, accepted_row, accepted_rows, alike_table
from eventbridge.delivery.run import Send, TargetRun
from eventbridge.delivery.steps import Steps
from eventbridge.model.chunk import Piece
from eventbridge.model.outcome import Response
from eventbridge.policy.response_to_outcome import expired
from eventbridge.targets.protocol import BlockTarget, Target, takes_blocks

#: Fewer rows are cheaper one by one: a table costs as much as some fifty rows.
_FEW = 50


class BlockDeliveries:
    """Blocks for one target that is ok and has no rate limit and no delivery window.

    Deliveries that a block target rejects or that are too old, and all deliveries if the target takes no blocks, go one
    by one.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.total = sum(block.count for block in blocks)
        self._blocks = list(blocks)
        self._taken: list[tuple[Block, Response]] = []

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send blocks as long as possible, and the rest one by one."""
        rest = Rounds(run, send, ())
        if takes_blocks(send.target):
            yield from self._deliver_blocks(run, send.target, rest)
        blocks, self._blocks = self._blocks, []
        rest.take_up(item for block in blocks for item in block.items())
        yield from rest.deliver()

    def _deliver_blocks(self, run: TargetRun, target: BlockTarget, rest: Rounds) -> Steps[None]:
        refused = False
        policy, clock = run.settings.policy, run.clock
        while self._blocks and not refused and not _must_end(run):
            block = self._blocks[0]
            if expired(policy, block.oldest, block.piece.on_hold_seconds, clock()) is not None:
                break
            start = 0
            with closing(target.deliver_block(block.payloads, run.until)) as responses:
                for end, response in responses:
                    self._taken.append((block.part(start, end), response))
                    run.note_duration(response)
                    run.report.sent += end - start
                    start = end
                    refused = not response.accepted
                    waiting = sum(taken.count for taken, _ in self._taken)
                    if must_flush(target, waiting, self._taken[0][1], response):
                        yield from self._settle_taken(run, target, rest)
                    if refused or _must_end(run):
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


def _must_end(run: TargetRun) -> bool:
    return run.is_stopping or run.is_closed or run.clock() >= run.until


def _put_accepted(rows: OutcomeRows, good: Sequence[tuple[Block, Response]], count: int) -> None:
    """Put the rows of accepted blocks, which have `count` deliveries in total."""
    taken = [(block, _row_like(block.piece, response)) for block, response in good]
    if count < _FEW:
        for block, like in taken:
            rows.put_all(accepted_rows(block.delivery_ids.to_pylist(), like))
    else:
        rows.put_table(pa.concat_tables(alike_table(block.delivery_ids, like) for block, like in taken))


def _row_like(piece: Piece, response: Response) -> OutcomeRow:
    return accepted_row(piece.rule, piece.target, piece.attempts + 1, response)
