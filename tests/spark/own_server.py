"""Spark Connect servers of tests, on ports that nobody takes while Java starts."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

from eventbridge.spark.server import SparkConnectServer

#: Below the ports that a system gives to outgoing connections: on a busy machine Java binds its port a minute after it
#: was chosen, and any connection of any process may have one of those by then.
_PORTS = range(15_000, 30_000)


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
