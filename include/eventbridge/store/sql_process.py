"""Runs the process that queries DuckDB; it reads tables and queries from one pipe and writes responses to another.

`eventbridge.store.sql_sandbox` starts it. The kernel enforces its limits: if a query recurses endlessly or builds
strings of gigabytes, this process ends, and no other process slows down or runs out of memory.
"""

from __future__ import annotations

import json
import select
import signal
from typing import Any, BinaryIO, Final

import duckdb
import pyarrow as pa

from eventbridge.child_process import open_pipes
from eventbridge.store import sql_messages

#: The process ends after this time without a query.
_IDLE_MILLISECONDS: Final = 60_000
#: If the caller does not end the process, it ends this much later than the caller stops waiting.
_GRACE_SECONDS: Final = 5.0


def main() -> None:
    """Process requests within `SMALL` memory until the pipe is closed or no query arrives for a minute."""
    _process_requests(sql_messages.SMALL)


def main_large() -> None:
    """Process requests like `main`, within `LARGE` memory."""
    _process_requests(sql_messages.LARGE)


def _process_requests(memory: sql_messages.Memory) -> None:
    requests, responses = open_pipes(memory.address_bytes)
    database: duckdb.DuckDBPyConnection | None = None
    while message := _message(requests):
        kind, body = message
        signal.setitimer(signal.ITIMER_REAL, sql_messages.SECONDS + _GRACE_SECONDS)  # SIGALRM ends the process
        if kind == sql_messages.BEGIN and database is not None:
            database.close()
        try:
            if kind == sql_messages.BEGIN:
                database = _open(memory)
                replies = [(sql_messages.DONE, b"")]
            else:
                assert database is not None, "the first message opens the database"
                replies = _fill(database, body) if kind == sql_messages.FILL else _query(database, **json.loads(body))
        except (MemoryError, duckdb.OutOfMemoryException):
            replies = [(sql_messages.MEMORY, b"")]
        except duckdb.Error as error:
            replies = [(sql_messages.WRONG, str(error).split("\n\nLINE")[0].encode("utf-8", "replace"))]
        for response, content in replies:
            responses.write(sql_messages.HEAD.pack(response, len(content)))
            responses.write(content)
        responses.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)


def _message(pipe: BinaryIO) -> tuple[bytes, bytes] | None:
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    if not poll.poll(_IDLE_MILLISECONDS):  # the buffer is empty, as each message gets a response before the next
        return None
    head = pipe.read(sql_messages.HEAD.size)
    if len(head) < sql_messages.HEAD.size:
        return None
    kind, length = sql_messages.HEAD.unpack(head)
    try:
        return kind, pipe.read(length)
    except MemoryError:  # the caller reports that the process has ended
        return None


def _open(memory: sql_messages.Memory) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(":memory:", config={"threads": 2, "memory_limit": memory.tables})
    for option, value in (
        ("temp_directory", "''"),  # otherwise SQL could read files there and fill the disk
        ("autoinstall_known_extensions", "false"),
        ("autoload_known_extensions", "false"),
        ("enable_progress_bar", "false"),
        ("python_enable_replacements", "false"),  # a query must not read this process's variables as tables
        ("TimeZone", "'UTC'"),
    ):
        database.execute(f"SET {option} = {value}")
    if memory.compressed:
        database.execute("ATTACH ':memory:' AS stored (COMPRESS true)").fetchall()
        database.execute("USE stored").fetchall()
    return database


def _fill(database: duckdb.DuckDBPyConnection, body: bytes) -> list[tuple[bytes, bytes]]:
    (length,) = sql_messages.SQL_LENGTH.unpack_from(body)
    sql = body[sql_messages.SQL_LENGTH.size : sql_messages.SQL_LENGTH.size + length].decode()
    with pa.ipc.open_stream(memoryview(body)[sql_messages.SQL_LENGTH.size + length :]) as stream:
        database.register("part", stream.read_all())
    database.execute(sql)
    database.unregister("part")
    return [(sql_messages.DONE, b"")]


def _query(
    database: duckdb.DuckDBPyConnection, *, expression: str | None, queries: list[str]
) -> list[tuple[bytes, bytes]]:
    """Return the results of queries. The queries can read only the filled tables, and cannot change settings."""
    if database.execute("SELECT current_setting('lock_configuration')").fetchall() != [(True,)]:
        for option, value in (("enable_external_access", "false"), ("lock_configuration", "true")):
            database.execute(f"SET {option} = {value}")
    if expression is not None:
        duckdb.SQLExpression(expression)  # a single expression, not SQL that closes the parentheses of a query
    replies: list[tuple[bytes, bytes]] = []
    for query in queries:
        if len(database.extract_statements(query)) != 1:
            raise duckdb.ParserException("it contains several statements")
        replies.append((sql_messages.TABLE, _stream_of(database.sql(query).to_arrow_table())))
    return replies


def _stream_of(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
