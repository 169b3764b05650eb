"""A DuckDB in memory that sees what it is given and nothing else, and whose queries can be interrupted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TypeVar

import duckdb

#: What its tables may take; they are in memory, as DuckDB may not write to a disk.
MEMORY = "2GB"

_T = TypeVar("_T")


def in_sandbox(ask: Callable[[duckdb.DuckDBPyConnection], _T]) -> _T:
    """Return what `ask` returns, which is given a database in memory, to be filled and then locked (`lock`).

    A signal ends it. The database is gone afterwards.
    """
    # All of it in a thread of its own. DuckDB looks at Python's signals where it runs: in the main thread a handler
    # that raises (Ctrl-C, the end of an Airflow task) is heard at a query's end, which may be never, is lost, or ends
    # the process where DuckDB's C++ expects no exception.
    with ThreadPoolExecutor(1) as pool:
        opened: Future[duckdb.DuckDBPyConnection] = Future()
        answer = pool.submit(_ask, ask, opened)
        try:
            return answer.result()
        finally:
            while not answer.done():  # more than once: between two queries there is nothing to interrupt
                if opened.done():
                    with suppress(duckdb.ConnectionException):  # closed this very moment
                        opened.result().interrupt()
                wait([answer], timeout=0.05)


def _ask(ask: Callable[[duckdb.DuckDBPyConnection], _T], opened: Future[duckdb.DuckDBPyConnection]) -> _T:
    with duckdb.connect(":memory:", config={"threads": 2, "memory_limit": MEMORY}) as connection:
        for option, value in (("autoinstall_known_extensions", "false"), ("TimeZone", "'UTC'")):
            connection.execute(f"SET {option} = {value}")
        opened.set_result(connection)
        return ask(connection)


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep what is asked from now on to the tables that are there: no file, no network, no other setting."""
    for option, value in (
        ("python_enable_replacements", "false"),  # a table must not be found among this process's variables
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        connection.execute(f"SET {option} = {value}")
