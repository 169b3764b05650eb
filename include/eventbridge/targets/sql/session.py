"""Limits the time for which a client waits for PostgreSQL. Import it only when a connection needs it."""

from __future__ import annotations

import time
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import OperationalError

#: How much longer than the server's own limit a client waits, in seconds, so that the server's message comes first.
_GRACE_SECONDS: Final = 2.0

T = TypeVar("T")


class LimitedSession(psycopg.Connection[Any]):
    """A connection that is closed if the server does not respond in time.

    The server's own limits do not end a statement of a server that is frozen, or that no packet reaches any more.
    """

    _seconds: float | None = None

    def limit(self, seconds: float) -> None:
        """Limit a statement and the wait for a lock, here and on the server, and wait for its disk in each commit."""
        self._seconds = seconds + _GRACE_SECONDS
        milliseconds = str(round(seconds * 1_000))
        with self.cursor() as cursor:
            cursor.execute(
                "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false), "
                "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)",
                [milliseconds, milliseconds],
            )
        self.commit()

    def wait(self, gen: PQGen[T], *arguments: Any, **named: Any) -> T:
        """Wait for the server, as psycopg does in every method; raises OperationalError when the time is over."""
        return super().wait(gen if self._seconds is None else self._limited(gen, self._seconds), *arguments, **named)

    def _limited(self, gen: PQGen[T], seconds: float) -> PQGen[T]:
        """Pass what a generator waits for on; psycopg sends 0 ten times a second while nothing comes."""
        end = time.monotonic() + seconds
        try:
            waits_for = next(gen)
            while True:
                ready = yield waits_for
                if not ready and time.monotonic() >= end:
                    self.pgconn.finish()
                    raise OperationalError(f"the server has not responded for {seconds:g} s")
                waits_for = gen.send(ready)
        except StopIteration as ended:
            value: T = ended.value
            return value
