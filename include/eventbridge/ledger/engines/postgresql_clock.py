"""The time of a PostgreSQL server's clock, without a query each time."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from functools import cached_property

from sqlalchemy import Engine

from eventbridge.errors import LedgerError
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.ledger.remedies import ledger_errors

#: A clock that also advances while the machine sleeps, if there is one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: The maximum age of a measurement: two clocks drift apart by some microseconds a second.
_KEPT_SECONDS = 60.0

#: How soon a server that did not respond is queried again, while the last measurement is used.
_AGAIN_SECONDS = 5.0

#: How long a server may take to return the time again.
_RESPONSE_SECONDS = 2.0


class PostgresqlClock:
    """A server's clock as a difference from this host's clock; thread-safe.

    The host's clock is the one that advances while the machine sleeps and that cannot be set.
    """

    def __init__(self, engine: LedgerEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._measured: tuple[datetime, float] | None = None
        self._due = 0.0

    def now(self) -> datetime:
        """Return the server's time, aware, in UTC; raises LedgerError if it was never measured and cannot be now."""
        measured = self._measured
        if measured is None or _elapsed() >= self._due:
            measured = self._measure()
        at, elapsed = measured
        return at + timedelta(seconds=_elapsed() - elapsed)

    @cached_property
    def _reader(self) -> Engine:
        return self._engine.reader(_RESPONSE_SECONDS)

    def _measure(self) -> tuple[datetime, float]:
        if not self._lock.acquire(blocking=self._measured is None):
            assert self._measured is not None
            return self._measured  # another thread measures it
        try:
            if self._measured is None or _elapsed() >= self._due:
                self._measured, self._due = self._ask(self._measured is None), _elapsed() + _KEPT_SECONDS
        except LedgerError:
            if self._measured is None:
                raise
            self._due = _elapsed() + _AGAIN_SECONDS
        finally:
            self._lock.release()
        assert self._measured is not None
        return self._measured

    def _ask(self, patient: bool) -> tuple[datetime, float]:
        """Query the server; only a `patient` caller waits for one that is down: pushes use the last measurement."""
        with ledger_errors(self._engine):
            connection = self._engine.connect() if patient else self._reader.connect()
            try:
                before = _elapsed()
                at = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
                after = _elapsed()
            finally:
                connection.close()
        return at.astimezone(UTC), (before + after) / 2


def _elapsed() -> float:
    return time.clock_gettime(_CLOCK)
