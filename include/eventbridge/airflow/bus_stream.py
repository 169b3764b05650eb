"""The poll of one bus in a triggerer: it hands each watcher and sensor its events, and records what Airflow recorded.

An asset event is recorded exactly once. The position of a watcher moves only after Airflow has recorded its asset
events, which Airflow confirms to `BusStream.advance`. Before asset events are sent to Airflow, the ledger records that
they will be (`claimed`). After a crash in between, `bus_reader` asks Airflow which of them it has recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from eventbridge.airflow.subscriptions import Poll

if TYPE_CHECKING:
    from eventbridge.airflow.bus_reader import BusReader

log = logging.getLogger(__name__)

#: The poll interval. An asset event takes up to one second more, because that is how often Airflow takes events from
#: its triggers.
POLL_SECONDS = 0.2
#: The wait before the next poll if messages are left, so that the event loop gets time.
_BEHIND_SECONDS = 0.02
#: The wait before the next poll after a poll failed.
_PAUSE_SECONDS = 2.0
#: The largest number of asset events that Airflow has not confirmed yet. It takes them one by one, each in a
#: transaction, so more would only wait in memory.
MAX_IN_FLIGHT = 256

Result = TypeVar("Result")


class BusStream(SharedStreamProducer):
    """Polls a bus in a thread of its own, as long as the bus has watchers or sensors in this triggerer.

    It continues after errors, because the end of a shared stream would fail all its sensors. An error that repeats is
    logged once.
    """

    def __init__(self, bus: str) -> None:
        self._bus = bus
        # One thread, because the buses' SQLite connections belong to the thread that opened them.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"eventbridge-bus-{bus}")
        self._reader: BusReader | None = None
        self._in_flight = 0
        self._last_error = ""

    async def open_stream(self) -> AsyncIterator[tuple[Poll, Poll]]:
        """Yield each poll that has asset events."""
        while True:
            try:
                poll = await self._call(lambda: self._open_reader().poll(MAX_IN_FLIGHT - self._in_flight))
            except Exception as error:  # the poll must survive every outage
                self._report(error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._last_error = ""
            if poll is not None:
                self._in_flight += poll.count
                yield poll, poll
            await asyncio.sleep(_BEHIND_SECONDS if self._open_reader().is_behind else POLL_SECONDS)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the positions of the watchers whose asset events Airflow has recorded."""
        polls = [(item.broker_payload, item.outcome.failed == 0) for item in batch]
        self._in_flight -= sum(poll.count for poll, _ in polls)
        try:
            await self._call(lambda: self._open_reader().settle(polls))
        except Exception as error:  # the next poll records the positions
            self._report(error)

    async def aclose(self) -> None:
        """Close the bus and the ledger."""
        if self._reader is not None:
            await self._call(self._reader.close)
        self._thread.shutdown(wait=False)

    def _open_reader(self) -> BusReader:
        if self._reader is None:
            from eventbridge.airflow.bus_reader import BusReader  # in the thread, because the import takes a second

            self._reader = BusReader(self._bus)
        return self._reader

    def _report(self, error: Exception) -> None:
        if self._last_error != str(error):
            self._last_error = str(error)
            log.error("watchers and sensors of the bus %s cannot read it, and wait: %s", self._bus, error)

    async def _call(self, function: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)
