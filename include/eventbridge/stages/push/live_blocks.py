"""A live run of a target that takes blocks, such as a file: it is kept open, and synced once for all that waits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from eventbridge.stages.push.blocks import Block, blocks_of
from eventbridge.stages.push.by_block import BlockDeliveries
from eventbridge.stages.push.live import LiveQueue
from eventbridge.stages.push.run import SLEEP_SECONDS, Send, TargetRun
from eventbridge.stages.push.steps import Sleep, Steps

#: A run that had nothing to do for so long ends, and its thread with it.
_IDLE: Final = timedelta(seconds=2)


class LiveBlocks:
    """What comes by a queue, as blocks; what was responded to while one block is synced is the next.

    It ends with the first delivery that is not taken: that, and what a block cannot be made of, is for an ordinary run.
    """

    total = 0

    def __init__(self, queue: LiveQueue) -> None:
        self._queue = queue

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send what comes until nothing has for a while, the budget is over, or the run must end."""
        busy_at = run.clock()
        while not _must_end(run):
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
        """Take what waits, up to a piece that is not for blocks."""
        found: list[Block] = []
        while (piece := self._queue.take()) is not None:
            blocks = blocks_of(piece)
            if blocks is None:
                self._queue.put_back(piece)
                break
            found += blocks
        return found

    def _is_over(self, now: datetime, busy_at: datetime) -> bool:
        return self._queue.ends or now - busy_at >= _IDLE


def _must_end(run: TargetRun) -> bool:
    return run.is_stopping or run.is_closed or not run.pace.is_unlimited or run.clock() >= run.until
