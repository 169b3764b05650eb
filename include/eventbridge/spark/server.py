"""A Spark Connect server of one's own, as a child process on the loopback address; for the demo, the CLI and tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from eventbridge.errors import SparkError
from eventbridge.spark.failure import first_error
from eventbridge.spark.java import require_java, spark_environment, submit_command

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

#: Seconds: on two busy cores a cold start and its first job take about 30.
_PATIENCE_SECONDS = 180.0
_STOP_SECONDS = 10.0


class SparkServer:
    """A running server; a context manager that ends it, its workers included."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.url = url
        self.log = log
        self._process = process

    @classmethod
    def start(cls, folder: Path, *, port: int = 0, master: str = "local[2]", memory: str = "1g") -> SparkServer:
        """Start a server that keeps its files and its log in `folder`; returns once it has run a real job.

        `port` 0 takes a free one. Raises SparkError if Java is missing, or if the server ends or stays silent.
        """
        require_java()
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        port = port or _free_port()
        log = folder / "spark-connect.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                _command(folder, port, master, memory),
                cwd=folder,
                env=spark_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own: ended as a whole, and not by the terminal's Ctrl-C
            )
        server = cls(process, f"sc://127.0.0.1:{port}", log)
        try:
            server._wait_until_ready(port)
        except BaseException:
            server.stop()
            raise
        return server

    @property
    def pid(self) -> int:
        """The process id of the server, which is its process group too."""
        return self._process.pid

    def stop(self) -> None:
        """End the server's process group, at first politely; harmless if it has ended."""
        for number, patience in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
            if self._process.poll() is not None:
                break
            os.killpg(self._process.pid, number)
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self, port: int) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while not _listens(port):
            if self._process.poll() is not None:
                tail = self.log.read_text(errors="replace")[-20_000:]
                raise SparkError(f"The Spark Connect server ended at once: {first_error(tail)}. Its log: {self.log}")
            if time.monotonic() > until:
                raise SparkError(f"The Spark Connect server does not listen after {_PATIENCE_SECONDS:g} s: {self.log}")
            time.sleep(0.1)
        warm_up(self.url)


def warm_up(url: str, runner: str = "warm-up") -> None:
    """Run a small job on a server, so that the next one finds it, and the workers of `runner`, warm.

    Raises SparkError if the server cannot be reached. The very first job of a server takes about 10 s.
    """
    from eventbridge.spark.failure import spark_errors
    from eventbridge.spark.session import connect

    with spark_errors(f"Spark at {url} does not answer"):
        connect(url, runner).range(0, 2, 1, numPartitions=2).mapInArrow(_import_what_route_needs, "id long").collect()


def _import_what_route_needs(batches):  # type: ignore[no-untyped-def]  # pickled by name; Spark gives Arrow batches
    import eventbridge.spark.route  # noqa: F401 - the import is the warming

    yield from batches


def _command(folder: Path, port: int, master: str, memory: str) -> list[str]:
    confs = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        # A closed session takes its id, and the warm workers behind it, with it: a runner may be quiet for weeks.
        "spark.connect.session.manager.defaultSessionTimeout": "30d",
    }
    return [*submit_command(master, folder, confs, memory), "--class", _CLASS, "spark-internal"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
