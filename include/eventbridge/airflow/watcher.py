"""The trigger that starts runs. It polls the ledger and the buses in the triggerer, once for all DAGs.

A run start carries no data, because the run reads offsets and due times itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

if TYPE_CHECKING:
    from eventbridge.airflow.watch import Watch

log = logging.getLogger(__name__)

#: The poll interval, which adds to the latency of events in batch mode. One poll takes about a millisecond.
POLL_SECONDS = 0.2

#: The wait before the next poll after a poll failed, for instance because the ledger could not be reached.
_PAUSE_SECONDS = 2.0

#: The subjects of the triggers that have begun since the last poll. Airflow does not pass them to the shared stream.
_begun: SimpleQueue[str] = SimpleQueue()


class Watcher(BaseEventTrigger):
    """Starts runs for one subject: a runner, or the retries.

    The runs are those of `eventbridge_deliver_<runner>` or `eventbridge_retry_deliveries`.
    """

    def __init__(self, subject: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.subject = subject

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments from which the triggerer creates this trigger."""
        return f"{__name__}.Watcher", {"subject": self.subject}

    def shared_stream_key(self) -> tuple[str]:
        """Return one key for all subjects, so that they share one poll."""
        return (f"{__name__}.Watcher",)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[list[str]]:
        """Yield the subjects to start runs for, whenever there are any.

        It continues after errors. An error that repeats is logged once.
        """
        loop = asyncio.get_running_loop()
        # One thread, because the buses' SQLite connections belong to the thread that opened them.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="eventbridge-watcher") as thread:
            watch: Watch | None = None
            last_error = ""
            try:
                while True:
                    pause = POLL_SECONDS
                    try:
                        if watch is None:
                            watch = await loop.run_in_executor(thread, _open_watch)
                        subjects = await loop.run_in_executor(thread, check, watch)
                        last_error = ""
                    except Exception as error:  # the poll must survive every outage
                        subjects = []
                        pause = _PAUSE_SECONDS
                        if last_error != str(error):
                            last_error = str(error)
                            log.warning("the watcher cannot poll; the fallback schedule starts the runs: %s", error)
                    if subjects:
                        yield subjects
                    await asyncio.sleep(pause)
            finally:
                if watch is not None:
                    await loop.run_in_executor(thread, watch.close)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[list[str]]) -> AsyncIterator[TriggerEvent]:
        """Yield one event for each poll that starts a run for this trigger's subject."""
        _begun.put(self.subject)
        async for subjects in shared_stream:
            if self.subject in subjects:
                yield TriggerEvent({"subject": self.subject})  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll for this trigger alone, in a triggerer that does not support shared streams."""
        async for event in self.filter_shared_stream(self.open_shared_stream({})):
            yield event


def _open_watch() -> Watch:
    from eventbridge.airflow.watch import open_watch

    return open_watch()


def check(watch: Watch) -> list[str]:
    """Reset the repeats of the subjects whose trigger has just begun, then return the subjects to start runs for."""
    with suppress(Empty):
        while True:
            watch.reset_repeats(_begun.get_nowait())
    return watch.check()
