"""Defines the interface of a database beyond SQL: how transactions begin, write locks, time, the meaning of errors.

The rest of the ledger is the same for every database. Each engine must pass `tests/contracts/ledger_contract.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from sqlalchemy import URL, Connection, Engine


class LedgerEngine(Protocol):
    """One database of one kind, made from a URL; it opens nothing before `connect`, and any thread may use it."""

    url: URL
    #: Whether processes of several hosts may share a ledger.
    spans_hosts: bool
    #: Whether opening a ledger migrates its tables; if not, only `eventbridge ledger migrate` does.
    migrates_when_opened: bool
    #: The first statements of a transaction that changes the ledger, and of one that only reads.
    begin_writing: str
    begin_reading: str
    #: Whether a reader's own limit bounds every wait of its queries; if not, the caller must bound it.
    bounds_readers: bool
    #: Maps a string in the database's messages to the remedy; the first match counts.
    #: A remedy may contain {file}, {folder}, {url}, {host} and {port}.
    remedies: Sequence[tuple[str, str]]

    def connect(self) -> Connection:
        """Open a connection on which `begin_writing` and `begin_reading` begin transactions."""

    def turn_to_write(self) -> AbstractContextManager[None]:
        """Exclude other writers if the database does not do so itself. Raises LedgerError when it takes too long."""

    def migrating(self, connection: Connection) -> AbstractContextManager[None]:
        """Keep other processes from migrating until the transaction ends, and adapt the tables that the block made."""

    def now(self) -> datetime:
        """Return the time of the database's clock, aware, in UTC; called for each delivery, so it must be cheap."""

    def last_number(self, connection: Connection, table: str, column: str) -> int:
        """Return the last number that the database generated for a row of a table, 0 if there is none."""

    def count_on(self, connection: Connection, table: str, column: str, number: int) -> None:
        """Make the database continue after this number when it next numbers a row of a table."""

    def drop_old_pages(self) -> None:
        """Rewrite the database, so that no byte of changed or deleted rows is left; it needs no open transaction.

        Raises UserError if the database cannot do so.
        """

    def may_run_again(self, error: BaseException) -> bool:
        """Return whether a transaction that failed with this error before its commit can be run again immediately."""

    def is_full(self, cause: str) -> bool:
        """Return whether a message means that the disk is full."""

    def reader(self, limit_seconds: float) -> Engine:
        """Return a factory of connections that cannot change the ledger and wait for it at most `limit_seconds`.

        Raises FileNotFoundError if the ledger does not exist, and creates none.
        """
