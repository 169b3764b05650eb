"""Queries a DuckDB that sees only the tables passed to it, in a process that is ended when it takes too long.

The process has no secret in its environment, opens no file and no connection, and has limits of time and memory. If
the caller is interrupted, or its work is cancelled, the process is ended at once.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from eventbridge.errors import InfrastructureError
from eventbridge.processes import check_cancelled, child_environment
from eventbridge.store.sql_messages import (
    ASK,
    BEGIN,
    DONE,
    FILL,
    HEAD,
    MEMORY,
    SECONDS,
    SQL_LENGTH,
    TABLE,
    TABLE_MEMORY,
)

#: The most processes that wait for the next query.
_MOST_IDLE: Final = 2
#: How long the process may take to start and import DuckDB, on a busy machine.
_START_SECONDS: Final = 120.0
#: How often a query checks whether it is cancelled.
_LOOK_MILLISECONDS: Final = 100
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from eventbridge.store.sql_process import main; main()"

_idle: list[subprocess.Popen[bytes]] = []
_lock = threading.Lock()


class SqlRefused(Exception):
    """DuckDB raised an error; its text may quote the content of the tables."""


class SqlLimited(Exception):
    """A query exceeded its time or memory; the text says which, as the end of a sentence."""


class Database:
    """An empty database in the process; fill its tables first, then query it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._send(BEGIN, [])
        self._response(_START_SECONDS)

    def fill(self, sql: str, table: pa.Table) -> None:
        """Run a statement that reads the table `part`; raises SqlRefused, SqlLimited, Cancelled, TimeSpent."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        written = sql.encode()
        self._send(FILL, [SQL_LENGTH.pack(len(written)), written, sink.getvalue()])
        self._response()

    def ask(self, queries: Sequence[str], *, expression: str | None = None) -> list[pa.Table]:
        """Return the result of each query; `expression` is checked to be one expression by itself.

        Nothing can be filled afterwards. Raises SqlRefused, SqlLimited, Cancelled, TimeSpent.
        """
        self._send(ASK, [json.dumps({"expression": expression, "queries": list(queries)}).encode()])
        tables = []
        for _ in queries:
            with pa.ipc.open_stream(self._response()) as stream:
                tables.append(stream.read_all())
        return tables

    def _send(self, kind: bytes, parts: Sequence[bytes | pa.Buffer]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            for part in (HEAD.pack(kind, sum(map(len, parts))), *parts):
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(pipe.fileno(), rest) :]
        except BrokenPipeError:
            raise SqlLimited(_DIED) from None

    def _response(self, seconds: float | None = None) -> bytes:
        """Return the process's response to the last message; `seconds`: wait this long instead of the usual time."""
        allowed = SECONDS if seconds is None else seconds
        kind, length = HEAD.unpack(self._read(HEAD.size, allowed))
        content = self._read(length, allowed)
        if kind == MEMORY:
            raise SqlLimited(f"takes more than {TABLE_MEMORY} of memory")
        if kind not in (DONE, TABLE):
            raise SqlRefused(content.decode())
        return content

    def _read(self, length: int, seconds: float) -> bytes:
        until = time.monotonic() + seconds
        pipe = self._process.stdout
        assert pipe is not None
        poll = select.poll()
        poll.register(pipe.fileno(), select.POLLIN)
        found = bytearray()
        while len(found) < length:
            check_cancelled()
            if not poll.poll(_LOOK_MILLISECONDS):
                if time.monotonic() > until:
                    raise SqlLimited(f"takes more than {seconds:g} s")
                continue
            if not (some := os.read(pipe.fileno(), min(length - len(found), 1 << 20))):
                raise SqlLimited(_DIED)
            found += some
        return bytes(found)


#: The kernel, or DuckDB itself, ended the process.
_DIED: Final = f"takes more than {TABLE_MEMORY} of memory, or ends DuckDB"


@contextmanager
def database() -> Iterator[Database]:
    """Yield an empty database; an interruption or failure ends its process. Raises InfrastructureError."""
    process, opened = _opened()
    try:
        yield opened
    except SqlRefused:
        _give_back(process)
        raise
    except BaseException:
        _end(process)
        raise
    _give_back(process)


def _opened() -> tuple[subprocess.Popen[bytes], Database]:
    while process := _taken():
        try:
            return process, Database(process)
        except SqlLimited:  # it has just ended, after idle time or because this machine lacks memory
            _end(process)
        except BaseException:
            _end(process)
            raise
    process = _start()
    try:
        return process, Database(process)
    except BaseException:
        _end(process)
        raise


def _taken() -> subprocess.Popen[bytes] | None:
    with _lock:
        while _idle:
            process = _idle.pop()
            if process.poll() is None:
                return process
            _end(process)  # it was idle for long
    return None


def _give_back(process: subprocess.Popen[bytes]) -> None:
    with _lock:
        if len(_idle) < _MOST_IDLE:
            _idle.append(process)
            return
    _end(process)


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-S", "-W", "ignore", "-c", _PROGRAM, *sys.path]
    try:
        # bufsize 0: a fork must not inherit half a message
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=child_environment()
        )
    except OSError as error:
        raise InfrastructureError(f"the process that asks DuckDB cannot be started: {error}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()


def _end_all() -> None:
    """End the processes that wait for a query."""
    with _lock:
        while _idle:
            _end(_idle.pop())


def _forget() -> None:
    """Leave the processes to the parent that started them; called in a fork, which must not use their pipes."""
    global _lock
    _lock = threading.Lock()
    for process in _idle:
        process.returncode = 0  # only the parent waits for it
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    _idle.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget)
