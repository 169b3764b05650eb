"""A DuckDB in memory that sees what it is given and nothing else, and whose queries can be interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import duckdb

#: What its tables may take; they are in memory, as DuckDB may not write to a disk.
MEMORY = "2GB"

_T = TypeVar("_T")


@contextmanager
def sandbox() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory, to be filled and then locked (`lock`); it is gone with the block."""
    with duckdb.connect(":memory:", config={"threads": 2, "memory_limit": MEMORY}) as connection:
        for option, value in (("autoinstall_known_extensions", "false"), ("TimeZone", "'UTC'")):
            connection.execute(f"SET {option} = {value}")
        yield connection


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Keep what is asked from now on to the tables that are there: no file, no network, no other setting."""
    for option, value in (
        ("python_enable_replacements", "false"),  # a table must not be found among this process's variables
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        connection.execute(f"SET {option} = {value}")


def interruptible(connection: duckdb.DuckDBPyConnection, ask: Callable[[], _T]) -> _T:
    """Return what `ask` returns, which runs a query on the connection; a signal ends it."""
    # In a thread of its own: DuckDB runs a query where it is asked, and a signal that Python is to handle in that
    # thread (Ctrl-C, the end of an Airflow task) may wait for the query's end, which may be never, or is lost.
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        try:
            return answer.result()
        finally:
            while not answer.done():  # more than once: before a query has begun there is nothing to interrupt
                connection.interrupt()
                wait([answer], timeout=0.05)
