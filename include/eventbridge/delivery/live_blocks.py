"""A live run of a target that takes blocks, such as a file: it stays open, and one sync covers all that waits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from eventbridge.delivery.blocks import Block, blocks_of
from eventbridge.delivery.by_block import BlockDeliveries
from eventbridge.delivery.live import LiveQueue
from eventbridge.delivery.run import SLEEP_SECONDS, Send, TargetRun
from eventbridge.delivery.steps import Sleep, Steps

#: Idle time after which a run, and its thread, ends.
_IDLE: Final = timedelta(seconds=2)


class LiveBlocks:
    """Deliveries that come through a queue, sent as blocks; what comes while one block is synced is the next block.

    It ends with the first delivery that is not accepted: that one, and pieces that blocks cannot hold, are for an
    ordinary run.
    """

    total = 0

    def __init__(self, queue: LiveQueue) -> None:
        self._queue = queue

    def deliver(self, run: TargetRun, send: Send) -> Steps[None]:
        """Send deliveries as they come until the run is idle for a while, the budget is spent, or the run must end."""
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
        """Take the waiting pieces, up to the first that blocks cannot hold."""
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
