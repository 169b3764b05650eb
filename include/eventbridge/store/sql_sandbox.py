"""Runs DuckDB on tables that are passed to it, and on nothing else, in a process that is killed if it takes too long.

The process has no secret in its environment, opens no file and no connection, and has limits on time and memory. If
the caller is interrupted, or its work is cancelled, the process is ended immediately.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from eventbridge.child_process import Child, ChildEnded, ChildLate, Children
from eventbridge.store import sql_messages

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

#: The maximum time that the process may take to start and import DuckDB, on a busy machine.
_START_SECONDS: Final = 120.0

children: Final = Children("eventbridge.store.sql_process", "asks DuckDB", "-S")
_large_children: Final = Children("eventbridge.store.sql_process", "asks DuckDB", "-S", main="main_large")


class SqlRefused(Exception):
    """DuckDB raised an error; the message may quote the content of the tables."""


class SqlLimited(Exception):
    """A query exceeded its time or memory; the message names the limit, as the end of a sentence."""


class Database:
    """An empty database in the process; fill its tables first, then query it."""

    def __init__(self, child: Child, memory: sql_messages.Memory) -> None:
        self._child = child
        self._memory = memory
        self._send(sql_messages.BEGIN, [])
        self._response(_START_SECONDS)

    def fill(self, sql: str, table: pa.Table) -> None:
        """Run a statement that reads the table `part`. Raises SqlRefused, SqlLimited, Cancelled, TimeSpent."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        written = sql.encode()
        self._send(sql_messages.FILL, [sql_messages.SQL_LENGTH.pack(len(written)), written, sink.getvalue()])
        self._response()

    def ask(
        self, queries: Sequence[str], *, expression: str | None = None, max_bytes: int | None = None
    ) -> list[pa.Table]:
        """Return the result of each query; `expression` must be a single expression.

        A result of more than `max_bytes` is not read. No table can be filled afterwards. Raises SqlRefused, SqlLimited,
        Cancelled, TimeSpent.
        """
        if any(_SURROGATE.search(text) for text in (*queries, expression or "")):
            raise SqlRefused("it contains half of a surrogate pair, which SQL cannot contain")
        self._send(sql_messages.ASK, [json.dumps({"expression": expression, "queries": list(queries)}).encode()])
        tables = []
        for _ in queries:
            with pa.ipc.open_stream(self._response(max_bytes=max_bytes)) as stream:
                tables.append(stream.read_all())
        return tables

    def _send(self, kind: bytes, parts: Sequence[bytes | pa.Buffer]) -> None:
        try:
            self._child.send((sql_messages.HEAD.pack(kind, sum(map(len, parts))), *parts))
        except ChildEnded:
            raise self._ended_by_limit() from None

    def _response(self, seconds: float | None = None, max_bytes: int | None = None) -> bytes:
        """Return the process's response to the last message, waiting at most `seconds` (by default `SECONDS`)."""
        allowed = sql_messages.SECONDS if seconds is None else seconds
        ends_at = time.monotonic() + allowed
        try:
            kind, length = sql_messages.HEAD.unpack(self._child.read(sql_messages.HEAD.size, ends_at))
            if max_bytes is not None and length > max_bytes:
                raise SqlLimited(f"has a result of more than {max_bytes >> 20:,} MB")
            content = self._child.read(length, ends_at)
        except ChildLate:
            raise SqlLimited(f"takes more than {allowed:g} s") from None
        except ChildEnded:
            raise self._ended_by_limit() from None
        if kind == sql_messages.MEMORY:
            raise SqlLimited(f"takes more than {self._memory.tables} of memory")
        if kind not in (sql_messages.DONE, sql_messages.TABLE):
            raise SqlRefused(content.decode())
        return content

    def _ended_by_limit(self) -> SqlLimited:
        """Return the error if the kernel, or DuckDB itself, ended the process."""
        return SqlLimited(f"takes more than {self._memory.tables} of memory, or crashes DuckDB")


@contextmanager
def database(memory: sql_messages.Memory = sql_messages.SMALL) -> Iterator[Database]:
    """Yield an empty database; its process ends after an interruption, or any failure but SqlRefused.

    Raises InfrastructureError if no process can be started.
    """
    of_memory = _large_children if memory is sql_messages.LARGE else children
    child, opened = _open(of_memory, memory)
    try:
        yield opened
    except SqlRefused:
        of_memory.give_back(child)
        raise
    except BaseException:
        child.end()
        raise
    of_memory.give_back(child)


def _open(children: Children, memory: sql_messages.Memory) -> tuple[Child, Database]:
    while child := children.idle():
        try:
            return child, Database(child, memory)
        except SqlLimited:  # it has just exited, because it was idle for too long or this machine lacks memory
            child.end()
        except BaseException:
            child.end()
            raise
    child = children.start()
    try:
        return child, Database(child, memory)
    except BaseException:
        child.end()
        raise
