"""The trigger that waits for the end of a replay. It reads one row of the ledger per second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from eventbridge.ledger import Ledger

log = logging.getLogger(__name__)

#: The time between two queries of a replay's state. A query reads one row by its key, so even many triggers put little
#: load on the ledger.
POLL_SECONDS = 1.0
#: The wait before the next query after an error.
_PAUSE_SECONDS = 5.0

#: The state that the trigger reports if the replay has not ended in time.
LATE = "late"

Found = TypeVar("Found")


class ReplayEnd(BaseTrigger):
    """Waits until a replay has ended, or until the given time (ISO 8601), and reports its final state, or LATE.

    If the task is killed, the trigger cancels the replay, provided that it still belongs to the run `run`, which
    started it.
    """

    def __init__(self, replay_id: str, run: str, until: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.replay_id = replay_id
        self.run_name = run
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path and the arguments from which the triggerer creates this trigger."""
        return f"{__name__}.ReplayEnd", {"replay_id": self.replay_id, "run": self.run_name, "until": self.until}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event with the final state of the replay, or LATE. Errors do not end the wait."""
        until = datetime.fromisoformat(self.until)
        last_error = ""
        while True:
            pause = POLL_SECONDS
            try:
                state, now = await _query(self._state)
            except Exception as error:  # the wait must survive every outage
                pause = _PAUSE_SECONDS
                if last_error != str(error):
                    last_error = str(error)
                    log.warning("cannot read the state of replay %s (%s)", self.replay_id, error)
            else:
                if state in ("done", "cancelled") or now >= until:
                    yield TriggerEvent({"state": state if state in ("done", "cancelled") else LATE})  # type: ignore[no-untyped-call]
                    return
            await asyncio.sleep(pause)

    async def on_kill(self) -> None:
        """Cancel the replay, because a user marked or cleared the task. A replay of another run is not cancelled."""
        if await _query(self._cancel):
            log.info("replay %s cancelled, because its task was marked or cleared", self.replay_id)

    def _state(self, ledger: Ledger) -> tuple[str, datetime]:
        return ledger.replays.get(self.replay_id).state, ledger.now()

    def _cancel(self, ledger: Ledger) -> bool:
        return ledger.replays.get(self.replay_id).run == self.run_name and ledger.replays.end(
            self.replay_id, "cancelled"
        )


#: All triggers of this process share one thread, and in it one connection to the ledger.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eventbridge-replays")
_opened: dict[str, Ledger] = {}


async def _query(query: Callable[[Ledger], Found]) -> Found:
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: _run_query(query))


def _run_query(query: Callable[[Ledger], Found]) -> Found:
    from eventbridge.airflow.settings import airflow_settings
    from eventbridge.errors import LedgerError
    from eventbridge.ledger import Ledger

    url = airflow_settings().ledger_url
    if url not in _opened:
        _opened[url] = Ledger.open(url)
    try:
        return query(_opened[url])
    except LedgerError:  # the next query reopens it
        _opened.pop(url).close()
        raise
