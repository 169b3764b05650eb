"""Spark Connect servers of tests, on ports that stay free while Java starts."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import pytest

from eventbridge.spark.server import SparkConnectServer

#: Below the ports that a system gives to outgoing connections: on a busy machine Java binds its port a minute after it
#: was chosen, and any connection of any process may have one of those by then.
_PORTS = range(15_000, 30_000)

#: The property of a test's report that says how the server of the tests before it ended.
ENDED_SERVER = "ended_spark_server"
_LOG_CHARACTERS = 8_000


def own_server(folder: Path, **options: Any) -> SparkConnectServer:
    """Return a server that is not started yet, with its files in `folder`."""
    return SparkConnectServer(folder, port=_unused_port(), **options)


def _unused_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("none of 100 ports is free")


class Servers:
    """The server that the tests of a session share, and the next one if it ended by itself."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._server: SparkConnectServer | None = None

    def running(self) -> SparkConnectServer:
        """Return the server, started if there is none."""
        if self._server is None:
            self._server = own_server(self._folders.mktemp("spark"))
            self._server.start()
        return self._server

    def how_it_ended(self) -> str | None:
        """Return the exit code and the end of the log of a server that ended by itself, and forget it; else None."""
        code = None if self._server is None else self._server.exit_code
        if self._server is None or code is None:
            return None
        log = self._server.log.read_text(errors="replace")[-_LOG_CHARACTERS:]
        self.stop()
        return f"The tests' Spark Connect server ended by itself with {code}. Its log ends:\n{log}"

    def stop(self) -> None:
        """End the server, if there is one."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
