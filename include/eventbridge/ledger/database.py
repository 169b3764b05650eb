"""Runs the ledger's transactions through one connection, which threads share and a forked process does not.

It also runs a method of the ledger again if its transaction was lost, because the server restarted or rolled it back in
favour of another one. It does so only if nothing can have changed, because the transaction was lost before its commit
was sent and the method had committed no other transaction before. If the response to a commit is lost, the commit may
have succeeded. The caller then gets an error, and a stage that runs again finds out from the rows, as after a kill.
Therefore no statement has to be idempotent.
"""

from __future__ import annotations

import functools
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

from eventbridge import fault_points
from eventbridge.errors import LedgerError
from eventbridge.ledger.engines.protocol import LedgerEngine
from eventbridge.ledger.engines.registry import BUSY_TIMEOUT_SECONDS, engine_of
from eventbridge.ledger.remedies import TransactionLostError, commit_errors, ledger_errors

Clock = Callable[[], datetime]

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: The time for which a lost transaction is retried. Within this time a server that restarts is available again, and one
#: of two deadlocked transactions has finished.
_AGAIN_SECONDS = 30.0

#: Guards the set of open databases; acquired before the lock of any database, never after.
_registering = threading.RLock()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_forking: list[Database] = []

_commits = threading.local()


def commits_of_this_thread() -> int:
    """Return how many transactions this thread has committed, in all databases."""
    return getattr(_commits, "count", 0)


class Database:
    """One database, used through one connection by any thread of this process, one transaction at a time.

    The code inside a transaction uses only the database: it accesses no files and no network and calls no callbacks.
    The default of `clock` is the database's clock, so that processes on several hosts compare times by one clock.
    Every error of SQLAlchemy is raised as LedgerError.
    """

    def __init__(
        self, url: str, clock: Clock | None = None, busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS
    ) -> None:
        self.engine = engine_of(url, busy_timeout_seconds)
        self._clock = clock or self.engine.now
        self._lock = threading.RLock()
        self._connection: sa.Connection | None = None
        with _registering:
            _databases.add(self)

    def now(self) -> datetime:
        """Return the time of the ledger's clock, to which leases, due times and deadlines are compared."""
        return self._clock()

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        with self._lock, ledger_errors(self.engine):
            self._drop()

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Run a transaction that changes the ledger; an exception inside rolls all of it back."""
        engine = self.engine
        with self._lock, ledger_errors(engine), engine.turn_to_write(), self._connected() as connection:
            with connection.begin() as transaction:
                connection.exec_driver_sql(engine.begin_writing)
                yield connection
                fault_points.reach("ledger.commit")
                with commit_errors(engine):
                    transaction.commit()
            _commits.count = commits_of_this_thread() + 1
            fault_points.reach("ledger.commit.done")

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Run a read-only transaction: it reads one snapshot, waits for no other transaction and blocks none."""
        with self._lock, ledger_errors(self.engine), self._connected() as connection, connection.begin() as transaction:
            connection.exec_driver_sql(self.engine.begin_reading)
            yield connection
            transaction.rollback()

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        # The one connection is kept, because opening one costs more than a transaction (SQLite makes several fsyncs).
        if self._connection is None:
            self._connection = self.engine.connect()
            sa.event.listen(self._connection, "before_cursor_execute", partial(_reach_execute, self.engine))
        try:
            yield self._connection
        except BaseException:
            self._drop()  # after any failure the next transaction begins with a new connection
            raise

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class LostRaceError(Exception):
    """Another process was faster; raised inside a transaction to roll it back."""


class Aggregate:
    """The base class of the methods for one kind of record in the ledger, each usually one transaction.

    Public methods of a subclass run again if their transaction is lost.
    """

    def __init__(self, database: Database) -> None:
        self._reading = database.reading
        self._writing = database.writing
        self._now = database.now

    def _rows(self, query: sa.Executable, values: Mapping[str, object] | None = None) -> Sequence[sa.Row[Any]]:
        """Run a query in its own transaction and return its rows."""
        with self._reading() as connection:
            return connection.execute(query, values).all()

    def _first(self, query: sa.Executable, values: Mapping[str, object] | None = None) -> sa.Row[Any] | None:
        """Run a query in its own transaction and return its first row, or None."""
        with self._reading() as connection:
            return connection.execute(query, values).first()

    def _change(self, statement: sa.UpdateBase, values: Mapping[str, object] | Sequence[Mapping[str, object]]) -> int:
        """Make a change in its own transaction and return the number of changed rows."""
        with self._writing() as connection:
            return connection.execute(statement, values).rowcount

    def __init_subclass__(cls) -> None:
        for name, value in list(vars(cls).items()):
            if isinstance(value, FunctionType) and not name.startswith("_"):
                setattr(cls, name, runs_lost_transactions_again(value))


def runs_lost_transactions_again(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a method of the ledger that runs again while its transaction is lost."""

    @functools.wraps(method)
    def call(*arguments: _P.args, **named: _P.kwargs) -> _T:
        until = time.monotonic() + _AGAIN_SECONDS
        # Iterators become lists, because the first run would exhaust them.
        kept: Any = [_materialize(each) for each in arguments]
        kept_named: Any = {name: _materialize(each) for name, each in named.items()}
        while True:
            committed = commits_of_this_thread()
            try:
                return method(*kept, **kept_named)
            except TransactionLostError as error:
                if time.monotonic() > until or commits_of_this_thread() != committed:
                    raise LedgerError(str(error)) from error
            time.sleep(random.uniform(0.01, 0.1))  # random, so that two transactions do not deadlock again

    return call


def _materialize(argument: Any) -> Any:
    return list(argument) if isinstance(argument, Iterator) else argument


def _reach_execute(engine: LedgerEngine, _connection: object, _cursor: object, statement: str, *_: object) -> None:
    if statement == engine.begin_writing:
        fault_points.reach("ledger.begin")
    elif statement.startswith(("SELECT", "WITH")) or statement == engine.begin_reading:
        fault_points.reach("ledger.select")
    else:
        fault_points.reach("ledger.execute")


# No connection is open while this process forks, because parent and child would share it. SQLite counts the locks of a
# file per process, in memory that a fork copies. Therefore a child that opens a file that its parent has open acquires
# no separate lock, and its commits are lost when the parent closes the file, as a test shows.


def _before_fork() -> None:
    _registering.acquire()
    _forking.extend(_databases)
    for database in _forking:
        database._lock.acquire()
        database.close()


def _after_fork() -> None:
    while _forking:
        _forking.pop()._lock.release()
    _registering.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
