"""What the ledger asks of a database beyond SQL: how transactions begin, whose turn it is, the time, what errors mean.

Everything else of the ledger is the same for every database; `contracts/ledger_contract.py` is what each must keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from sqlalchemy import URL, Connection, Engine


class LedgerEngine(Protocol):
    """One database of one kind; made of a URL, opens nothing before `connect`, and is used by any thread."""

    url: URL
    #: Whether processes of several hosts may share a ledger.
    spans_hosts: bool
    #: Whether opening a ledger migrates its tables; if not, only `eventbridge ledger migrate` does.
    migrates_when_opened: bool
    #: The statement that a transaction begins with that changes the ledger, and one that only reads.
    begin_writing: str
    begin_reading: str
    #: Whether a reader's own limit bounds every wait of its queries; if not, the caller must bound it.
    bounds_readers: bool
    #: Words of the database's messages -> what to do; the first that occurs counts.
    #: May name {file}, {folder}, {url}, {host}, {port}.
    remedies: Sequence[tuple[str, str]]

    def connect(self) -> Connection:
        """Open a connection on which `begin_writing` and `begin_reading` begin transactions."""

    def turn_to_write(self) -> AbstractContextManager[None]:
        """Keep other writers out where the database does not by itself; raises LedgerError when it takes too long."""

    def migrating(self, connection: Connection) -> AbstractContextManager[None]:
        """Keep other processes from migrating until the transaction ends, and finish the tables that the block made."""

    def now(self) -> datetime:
        """Return the time by the database's clock, aware, in UTC; asked for each delivery, so it must be cheap."""

    def last_number(self, connection: Connection, table: str, column: str) -> int:
        """Return the last number that the database gave to a row of a table, 0 if it gave none."""

    def count_on(self, connection: Connection, table: str, column: str, number: int) -> None:
        """Have the database give no number up to this one to a row of a table."""

    def may_run_again(self, error: BaseException) -> bool:
        """Return whether a transaction that ended with this error, before its commit, can be run again at once."""

    def is_full(self, cause: str) -> bool:
        """Return whether a message means that there is no room left."""

    def reader(self, limit_seconds: float) -> Engine:
        """Return what opens connections that cannot change the ledger and wait at most so long for it.

        Raises FileNotFoundError for a ledger that is not there, and makes none.
        """
