"""A queue in memory, with switches for failures; it passes the contract suite of every queue source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Literal

import pyarrow as pa

from eventbridge.fault_points import reach
from eventbridge.sources.messages import RECEIVED
from eventbridge.testing.messages import Message
from eventbridge.testing.sources import Switches


class InMemoryQueue:
    """A queue source that keeps its messages in memory; `switches.fail("receive")` makes calls fail.

    A message that is received comes again after `invisible`, under a new receipt, unless it is acknowledged.
    """

    kind: Literal["queue"] = "queue"
    uri = "memory:"

    def __init__(self, *, clock: Callable[[], datetime], invisible: timedelta = timedelta(seconds=30)) -> None:
        self.switches = Switches()
        self._clock = clock
        self._invisible = invisible
        self._turn = threading.Lock()
        self._numbers = count()
        self._receipt_numbers = count()
        self._waiting: dict[int, Message] = {}
        self._visible_at: dict[int, datetime] = {}
        self._receipts: dict[str, int] = {}

    @property
    def visibility_timeout(self) -> float:
        """Return for how long a received message is invisible to other receivers."""
        return self._invisible.total_seconds()

    def publish(self, bodies: Sequence[bytes]) -> list[str]:
        """Append messages and return their ids."""
        reach("bus.publish")
        self.switches.check("publish")
        with self._turn:
            now = self._clock()
            sent = [(number, body) for body, number in zip(bodies, self._numbers, strict=False)]
            for number, body in sent:
                self._waiting[number] = Message(number, now, body)
        reach("bus.publish.done")
        return [f"events-{number}" for number, _ in sent]

    def receive(self, at_most: int) -> pa.RecordBatch:
        """Return up to `at_most` visible messages as one block; they are invisible to others for now."""
        reach("bus.receive")
        self.switches.check("receive")
        with self._turn:
            now = self._clock()
            visible = [number for number in self._waiting if self._visible_at.get(number, now) <= now][:at_most]
            return pa.RecordBatch.from_pylist([self._hand_out(number, now) for number in visible], schema=RECEIVED)

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """Remove messages; expired receipts are ignored."""
        reach("bus.acknowledge")
        self.switches.check("acknowledge")
        with self._turn:
            for receipt in receipts:
                number = self._receipts.pop(receipt, None)
                if number is not None and self._visible_at[number] > self._clock():
                    del self._waiting[number]
        reach("bus.acknowledge.done")

    def extend(self, receipts: Sequence[str]) -> list[str]:
        """Restart the visibility timeout of messages, under new receipts; expired ones are ignored."""
        self.switches.check("extend")
        with self._turn:
            return [self._extended(receipt) for receipt in receipts]

    def waiting(self) -> int:
        """Return the number of unacknowledged messages."""
        self.switches.check("waiting")
        return len(self._waiting)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _extended(self, receipt: str) -> str:
        number = self._receipts.get(receipt)
        if number is None or self._visible_at[number] <= self._clock():
            return receipt
        del self._receipts[receipt]
        self._visible_at[number] = self._clock() + self._invisible
        again = f"{number}-{next(self._receipt_numbers)}"
        self._receipts[again] = number
        return again

    def _hand_out(self, number: int, now: datetime) -> dict[str, Any]:
        self._receipts = {receipt: of for receipt, of in self._receipts.items() if of != number}
        self._visible_at[number] = now + self._invisible
        receipt = f"{number}-{next(self._receipt_numbers)}"
        self._receipts[receipt] = number
        message = self._waiting[number]
        return {
            "receipt": receipt,
            "message_id": f"events-{number}",
            "published_at": message.published_at,
            "body": message.body,
        }
