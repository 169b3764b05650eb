"""Records in the store how far running backtests are, for the page, and reads these records."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct, json

from eventbridge.errors import StoreError
from eventbridge.progress import Progress
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout

log = logging.getLogger(__name__)

#: A record is written again after this time, so that a backtest with many short steps writes few files.
_WRITE_EVERY: Final = timedelta(seconds=2)
#: A record that is older belongs to a process that died: it is not shown, and the next backtest removes it.
_MAX_AGE: Final = timedelta(minutes=30)


class RunningBacktest(Struct, frozen=True):
    """The progress of a backtest of `what`: it has read `done` of `total` archived events at `reported_at`.

    `total` is None until the events are counted.
    """

    what: str
    started_at: datetime
    reported_at: datetime
    done: int = 0
    total: int | None = None

    @property
    def percent(self) -> float:
        """The share of the archived events that it has read, from 0 to 100."""
        return 100 * self.done / self.total if self.total else 0.0

    @property
    def rate(self) -> float | None:
        """The events that it reads per second; None before its first step has ended."""
        seconds = (self.reported_at - self.started_at).total_seconds()
        return self.done / seconds if self.done and seconds > 0 else None

    @property
    def left(self) -> float | None:
        """The seconds that are left at this rate; None if the rate or the number of events is not known."""
        return None if self.rate is None or self.total is None else (self.total - self.done) / self.rate


@contextmanager
def recorded_progress(runtime: Runtime, what: str) -> Iterator[Progress]:
    """Yield the function that records the progress of a backtest in the store; the record is removed at the end.

    A record that cannot be written is logged, and the backtest continues.
    """
    path = layout.running_backtest(str(uuid.uuid4()))
    now = runtime.ledger.now()
    for old, found in _records(runtime):
        if found is None or now - found.reported_at > _MAX_AGE:
            _try_to_delete(runtime, old)
    newest = RunningBacktest(what, now, now)
    _write(runtime, path, newest)

    def record(done: int, total: int | None) -> None:
        nonlocal newest
        at = runtime.ledger.now()
        if at - newest.reported_at >= _WRITE_EVERY:
            newest = RunningBacktest(what, now, at, done, total)
            _write(runtime, path, newest)

    try:
        yield record
    finally:
        _try_to_delete(runtime, path)


def running_backtests(runtime: Runtime) -> list[RunningBacktest]:
    """Return the backtests that run now, the newest first, as far as they record their progress."""
    now = runtime.ledger.now()
    found = [each for _, each in _records(runtime) if each is not None and now - each.reported_at <= _MAX_AGE]
    return sorted(found, key=lambda each: each.started_at, reverse=True)


def _records(runtime: Runtime) -> Iterator[tuple[str, RunningBacktest | None]]:
    """Yield the path of each record and its content, None if it is damaged; records that have just ended are absent."""
    for path in runtime.store.list(layout.RUNNING_BACKTESTS):
        with suppress(StoreError):
            content = runtime.store.get(path)
            try:
                yield path, json.decode(content, type=RunningBacktest)
            except msgspec.MsgspecError:
                yield path, None


def _write(runtime: Runtime, path: str, record: RunningBacktest) -> None:
    try:
        runtime.store.put(path, json.encode(record))
    except StoreError as error:
        log.warning("the page does not show the progress of this backtest: %s", error)


def _try_to_delete(runtime: Runtime, path: str) -> None:
    with suppress(StoreError):
        runtime.store.delete(path)
