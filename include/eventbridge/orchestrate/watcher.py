"""The trigger that wakes the DAGs: one poll of ledger and buses in the triggerer, shared by all of them.

A run start is a hint: it says nothing about what there is to do; offsets and due times are the truth.
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
    from eventbridge.orchestrate.watch import Watch

log = logging.getLogger(__name__)

#: How often the buses are looked at: it is on the way of every event, and one look costs about a millisecond.
LOOK_SECONDS = 0.2

#: How long to leave an unreachable ledger, bus or rule folder alone.
_PAUSE_SECONDS = 2.0

#: The subjects of triggers that began since the last look. Airflow gives the shared stream no word of them.
_begun: SimpleQueue[str] = SimpleQueue()


class Watcher(BaseEventTrigger):
    """Starts runs for one subject: a runner (`eventbridge_deliver_<runner>`) or the retries
    (`eventbridge_retry_deliveries`).
    """

    def __init__(self, subject: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.subject = subject

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments that make this trigger again in the triggerer."""
        return f"{__name__}.Watcher", {"subject": self.subject}

    def shared_stream_key(self) -> tuple[str]:
        """Return one key for all subjects: they share one poll."""
        return (f"{__name__}.Watcher",)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[list[str]]:
        """Yield the subjects to start runs for, whenever there are any; goes on through every error, and logs it
        once.
        """
        loop = asyncio.get_running_loop()
        # One thread for good: the buses' SQLite connections belong to the thread that opened them.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="eventbridge-watcher") as thread:
            watch: Watch | None = None
            complaint = ""
            try:
                while True:
                    pause = LOOK_SECONDS
                    try:
                        if watch is None:
                            watch = await loop.run_in_executor(thread, _open_watch)
                        subjects = await loop.run_in_executor(thread, look, watch)
                        complaint = ""
                    except Exception as error:  # the poll must outlive whatever is wrong outside
                        subjects = []
                        pause = _PAUSE_SECONDS
                        if complaint != str(error):
                            complaint = str(error)
                            log.warning("the watcher cannot look (%s); the fallback schedule starts the runs", error)
                    if subjects:
                        yield subjects
                    await asyncio.sleep(pause)
            finally:
                if watch is not None:
                    await loop.run_in_executor(thread, watch.close)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[list[str]]) -> AsyncIterator[TriggerEvent]:
        """Yield one event for each look that starts a run for this trigger's subject."""
        _begun.put(self.subject)
        async for subjects in shared_stream:
            if self.subject in subjects:
                yield TriggerEvent({"subject": self.subject})  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look without sharing, for a triggerer that knows no shared streams."""
        async for event in self.filter_shared_stream(self.open_shared_stream({})):
            yield event


def _open_watch() -> Watch:
    from eventbridge.orchestrate.watch import open_watch

    return open_watch()


def look(watch: Watch) -> list[str]:
    """Return the subjects to start runs for now; a subject whose trigger began since the last look counts as new."""
    with suppress(Empty):
        while True:
            watch.listen_for(_begun.get_nowait())
    return watch.look()
