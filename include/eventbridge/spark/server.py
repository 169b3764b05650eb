"""Runs a local Spark Connect server as a child process on the loopback address, for the demo, the CLI and tests."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from eventbridge.errors import InfrastructureError, SparkError
from eventbridge.files import make_private_folder, open_private
from eventbridge.spark.child_guard import start_tethered, start_untethered
from eventbridge.spark.class_archive import find_archive, store_archive
from eventbridge.spark.environment import (
    SECRETS_FILE,
    TOKEN,
    find_java,
    require_java,
    spark_environment,
    spark_home,
    submit_command,
    write_secrets,
)
from eventbridge.spark.failure import first_error_of_log, spark_errors
from eventbridge.spark.session import connect, forget, redact_address

#: The file in the server's folder that holds the secrets of its workers.
_SECRETS = "worker-secrets.json"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

#: The maximum number of seconds that a server may take to start. On two busy cores, a cold start and the first job take
#: about 30 s.
_START_TIMEOUT_SECONDS = 180.0
_STOP_SECONDS = 10.0
#: Java writes the archive of its classes, 170 MB, before it ends.
_ARCHIVE_SECONDS = 120.0
#: The exit code of a Java that has ended in order after SIGTERM.
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM
#: The maximum number of seconds that a killed process may take to end. On a busy machine, it takes several.
_KILL_SECONDS = 60.0


class SparkConnectServer:
    """A server that runs while the context is open. Its Python workers end with it, and it affects no other process.

    It keeps its files and its log in `folder`, by default a temporary one. `port` 0 selects a free one.
    Its workers get the connections of `environ`, by default this process's, from a file that only its owner can read;
    the server itself gets the variables of `environment.drop_secrets`. Clients need `token`, by default a random
    one, which is part of its `url`. If this process is killed, the server ends too, unless `outlives` is set.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int = 0,
        master: str = "local[2]",
        memory: str = "1g",
        environ: Mapping[str, str] | None = None,
        outlives: bool = False,
        token: str | None = None,
    ) -> None:
        self._folder = folder.resolve() if folder is not None else None
        self._run_folder = Path()  # the folder of the running server
        self.port = port or _free_port()
        self._master = master
        self._memory = memory
        self._environ = environ
        self.token = token or secrets.token_urlsafe(32)
        #: Flags of Java instead of those that make it use the archive of Spark's classes.
        self.java_flags: str | None = None
        self._start = start_untethered if outlives else start_tethered
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._turn = threading.Lock()  # another thread may call `stop` while `start` creates the process

    @property
    def url(self) -> str:
        """The server's Connect URL with the token: sc://host:port/;token=T."""
        return f"sc://127.0.0.1:{self.port}/;token={self.token}"

    @property
    def log(self) -> Path:
        """Its log file."""
        return self._run_folder / "spark-connect.log"

    @property
    def pid(self) -> int:
        """The process id of the running server, which is also its process group."""
        if self._process is None:
            raise SparkError("The Spark Connect server is not running.")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The server's exit code, or the negative signal number if it was killed.

        It is None while it runs and after `stop`.
        """
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the server and return once it has run a real job.

        Raises SparkError if Java is missing, if the server's folder is not writable, if the server ends or does not
        respond, or if it was already stopped.
        """
        require_java()
        process = self._spawn()
        try:
            self._wait_until_ready(process)
        except BaseException:
            self.stop()
            raise

    def stop(self, seconds: float = _STOP_SECONDS) -> int | None:
        """End the server's process group with SIGTERM, and with SIGKILL if it has not ended after `seconds`.

        Return the server's exit code, or None if it was never started or already stopped.
        """
        with self._turn:
            self._stopped = True
            process, self._process = self._process, None
        for number, most in ((signal.SIGTERM, seconds), (signal.SIGKILL, _KILL_SECONDS)):
            if process is None or process.poll() is not None:
                break
            os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(most)
        if process is not None and process.stdin is not None:
            process.stdin.close()
        if process is not None:
            (self._run_folder / _SECRETS).unlink(missing_ok=True)
        if process is not None and self._folder is None:
            shutil.rmtree(self._run_folder, ignore_errors=True)
        return None if process is None else process.returncode

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._turn:
            if self._stopped:
                raise SparkError("The Spark Connect server was stopped.")
            try:
                self._process = self._launch()
            except OSError as error:
                (self._run_folder / _SECRETS).unlink(missing_ok=True)
                raise SparkError(
                    f"The Spark Connect server cannot be started, as its folder {self._run_folder} cannot be written: "
                    f"{error.strerror}. Free space there, or give this user the right to write"
                ) from None
            return self._process

    def _launch(self) -> subprocess.Popen[bytes]:
        self._run_folder = self._folder or Path(tempfile.mkdtemp(prefix="eventbridge-spark-"))
        make_private_folder(self._run_folder)
        environ = os.environ if self._environ is None else self._environ
        write_secrets(environ, self._run_folder / _SECRETS)
        known = {TOKEN: self.token, SECRETS_FILE: str(self._run_folder / _SECRETS)}
        with os.fdopen(open_private(self.log, os.O_WRONLY | os.O_TRUNC), "wb") as output:
            return self._start(  # in its own group, which ends together and not on the terminal's Ctrl-C
                _command(self._run_folder, self.port, self._master, self._memory, self.java_flags),
                cwd=self._run_folder,
                env=spark_environment(environ) | known,
                stdout=output,
                stderr=subprocess.STDOUT,
                umask=0o077,  # files of Java and the Python workers are private
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _START_TIMEOUT_SECONDS
        while not _listens(self.port):
            if process.poll() is not None:
                reason = first_error_of_log(self.log.read_text(errors="replace"))
                raise SparkError(f"The Spark Connect server ended while it was starting: {reason}. Its log: {self.log}")
            if time.monotonic() > until:
                raise SparkError(
                    f"The Spark Connect server is not listening after {_START_TIMEOUT_SECONDS:g} s. Its log: {self.log}"
                )
            time.sleep(0.1)
        warm_up(self.url)


def archive_classes() -> None:
    """Archive the classes that a server loads, unless there is an archive for this Java and Spark; see `class_archive`.

    It takes half a minute. Raises PackageMissing without Spark, SparkError if a server cannot start, and
    InfrastructureError if the archive cannot be written.
    """
    spark = spark_home()
    require_java()
    java = find_java()
    assert java is not None
    if find_archive(java, spark) is not None:
        return
    with tempfile.TemporaryDirectory(prefix="eventbridge-spark-") as folder:
        file = Path(folder) / "classes.jsa"
        server = SparkConnectServer(Path(folder) / "server")
        server.java_flags = f'"-XX:ArchiveClassesAtExit={file}"'
        server.start()
        # A Java that had to be killed has written a part of the archive, at which the next one would crash.
        code = server.stop(_ARCHIVE_SECONDS)
        if code != _ENDED_BY_SIGTERM:
            raise InfrastructureError(
                f"Java ended with exit code {code} before it had written the archive of Spark's classes. Spark works "
                f"without, but takes twice as long to start. See that {tempfile.gettempdir()} has 300 MB of space, "
                "and run the command again"
            )
        try:
            store_archive(file, java, spark)
        except OSError as error:
            raise InfrastructureError(
                f"the archive of Spark's classes cannot be written: {error.strerror}. Spark works without, but takes "
                "twice as long to start"
            ) from None


def warm_up(url: str, runner: str = "warm-up") -> None:
    """Run a small job on a server to warm up the server and the workers of `runner`.

    The first job of a server takes about 10 s. Raises SparkError if the server cannot be reached.
    """
    forget(url, runner)  # this process may have a session with an earlier server at this address
    with spark_errors(f"Spark at {redact_address(url)} does not respond"):
        connect(url, runner).range(0, 2, 1, numPartitions=2).mapInArrow(_import_what_route_needs, "id long").collect()


def _import_what_route_needs(batches):  # type: ignore[no-untyped-def]  # pickled by name; Spark gives Arrow batches
    import pandas  # noqa: F401 - pyarrow would import it with its first array, half a second later

    import eventbridge.spark.route  # noqa: F401 - the imports are the warming
    from eventbridge.routing.warm_up import compile_ahead

    compile_ahead()
    yield from batches


def _command(folder: Path, port: int, master: str, memory: str, java_flags: str | None) -> list[str]:
    confs = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        # A closed session loses its id and its warm workers, and a runner may be idle for weeks.
        "spark.connect.session.manager.defaultSessionTimeout": "30d",
        # Scheduler pools share the task slots: one pool for old work, and the default pool for everything else.
        "spark.scheduler.mode": "FAIR",
    }
    return [*submit_command(master, folder, confs, memory, java_flags), "--class", _CLASS, "spark-internal"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
