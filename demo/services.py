"""Starts and stops the services of the demo: Airflow's four, Spark Connect, the receiver, and optional ones."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from demo.config import BUCKET, FOLDER, ROOT, DemoConfig, DemoError, environment, product_settings, save, spark_settings
from demo.ports import is_listening
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError
from eventbridge.ledger import Ledger
from eventbridge.processes import OLD_NICENESS
from eventbridge.rules.load import load_rules
from eventbridge.runtime.open import open_runtime
from eventbridge.spark.server import SparkConnectServer, warm_up

#: Airflow's components. Logs are read from the shared disk, so there are no log servers, which would listen on all
#: addresses.
AIRFLOW = (
    ("api-server",),
    ("scheduler", "--skip-serve-logs"),
    ("dag-processor",),
    ("triggerer", "--skip-serve-logs"),
)

#: These wait this long for the lock of Airflow's SQLite database, as they would exit after Python's default of five
#: seconds. The API server keeps the default: its loop may wait for a lock of one of its own threads.
_WAITS_FOR_LOCKS = frozenset({"scheduler", "dag-processor", "triggerer"})
_LOCK_SECONDS = 30

#: The limit for a start: Airflow's API server alone may take two minutes on a busy machine. A service that ends is
#: noticed immediately.
_READY_SECONDS = 300.0
_GRACE_SECONDS = 8.0
_PIDS = "pids.json"


@dataclass
class Services:
    """The running services of one environment; each is a process group of its own."""

    config: DemoConfig
    #: Services with a lower CPU priority than the others, like containers with lower `cpu_shares`.
    low_priority: Collection[str] = ()
    groups: dict[str, int] = field(default_factory=dict)
    _commands: dict[str, Sequence[str]] = field(default_factory=dict)
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _sparks: list[SparkConnectServer] = field(default_factory=list)

    def start(self) -> None:
        """Start everything and return once events can be delivered, with Spark's workers warm.

        On an error it stops what it has started, and raises DemoError.
        """
        save(self.config)
        spark = self._spark()
        thread = ThreadPoolExecutor(1)
        try:
            started = thread.submit(spark.start)  # it takes as long as Airflow
            self._start_receiver()
            if self.config.s3_port:
                self._start_s3()
            if self.config.ledger_port:
                self._start_postgresql()
            if self.config.bus_ports:
                self._start_broker()
            self._make_ledger()
            self._airflow("db", "migrate")
            for command in AIRFLOW:
                self._spawn(command[0], ["airflow", *command])
            self._wait_for_airflow()
            started.result()
            self._add("spark", spark.pid)
            for runner in load_rules(ROOT / self.config.rules_folder).runners():
                warm_up(spark.url, runner)
        except BaseException as error:
            spark.stop()
            self.stop()
            if isinstance(error, EventBridgeError):
                raise DemoError(str(error)) from error
            raise
        finally:
            thread.shutdown(wait=False)

    def restart_spark(self) -> None:
        """Restart Spark on its port after it died; returns when it has run a job. Raises SparkError."""
        stop_groups({"spark": self.groups.pop("spark")})  # its workers may still run
        self._sparks[-1].stop()  # waits for its last thread: until then its port still responds
        spark = self._spark()
        spark.start()
        self._add("spark", spark.pid)

    def end(self, name: str) -> None:
        """Stop one service other than Spark, until it is restarted."""
        stop_groups({name: self.groups.pop(name)})
        self._note_pids()

    def restart(self, name: str) -> None:
        """Restart a service other than Spark on its port after it died; stops the rest of its process group.

        For an S3 server, it returns once the server responds, for others at once.
        """
        if name in self.groups:
            self.end(name)
        self._spawn(name, self._commands[name])
        if name == "s3":
            self._wait_for_s3()

    def stop(self, but: Collection[str] = ()) -> None:
        """Stop every service except those in `but`, first by SIGTERM; skips services that have ended."""
        ending = {name: pid for name, pid in self.groups.items() if name not in but}
        stop_groups(ending)
        self.groups = {name: pid for name, pid in self.groups.items() if name not in ending}
        for child in self._children:
            if child.pid in ending.values():
                # Its leader has ended, but maybe not its last thread: wait, so that the handle knows it.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_GRACE_SECONDS)
            child.poll()
        for spark in self._sparks:
            spark.stop()
        self._note_pids()

    def check(self) -> None:
        """Raise DemoError if a service has ended unexpectedly."""
        for name, pid in self.groups.items():
            if not _is_running(pid):
                raise DemoError(f"{name} has ended: {_last_words(self.config.logs / f'{name}.log')}")

    def _spark(self) -> SparkConnectServer:
        environ = {**os.environ, **spark_settings(self.config)}
        folder, port = self.config.folder / "spark", self.config.spark_port
        token = self.config.spark_token
        spark = SparkConnectServer(folder, port=port, environ=environ, outlives=True, token=token)  # until `make down`
        self._sparks.append(spark)
        return spark

    def _start_receiver(self) -> None:
        command = [sys.executable, "-m", "demo.receiver", "--port", str(self.config.receiver_port)]
        self._spawn("receiver", [*command, "--log", str(self.config.received)])

    def _start_s3(self) -> None:
        """Start the S3 server and wait until its bucket exists."""
        port, journal = str(self.config.s3_port), str(self.config.folder / "s3.journal")
        command = [sys.executable, "-m", "demo.s3_server", "--port", port, "--bucket", BUCKET]
        self._spawn("s3", [*command, "--journal", journal])
        self._wait_for_s3()

    def _wait_for_s3(self) -> None:
        until = time.monotonic() + _READY_SECONDS
        while not _is_up(f"http://127.0.0.1:{self.config.s3_port}/{BUCKET}"):
            self.check()
            if time.monotonic() > until:
                raise DemoError(f"After {_READY_SECONDS:g} s the S3 server does not respond.")
            time.sleep(0.1)

    def _start_postgresql(self) -> None:
        """Start the PostgreSQL server of the ledger, downloaded if it is missing, and wait until it listens."""
        port, folder = self.config.ledger_port, self.config.ledger_folder
        environ = {"PYTHONPATH": f"tests{os.pathsep}.", "PGPASSWORD": self.config.password}
        self._spawn("postgresql", [sys.executable, "-m", "services.postgresql", str(port), folder], environ)
        until = time.monotonic() + _READY_SECONDS
        while not is_listening(port):
            self.check()
            if time.monotonic() > until:
                raise DemoError(f"After {_READY_SECONDS:g} s the PostgreSQL server does not respond.")
            time.sleep(0.1)

    def _start_broker(self) -> None:
        """Start the broker of the bus, downloaded if it is missing, and wait until its topic exists."""
        bus, folder = self.config.bus, self.config.folder / "broker"
        (folder / "ready").unlink(missing_ok=True)  # of an earlier start
        program = [sys.executable, "-m", "services.run_broker", bus, str(folder), *map(str, self.config.bus_ports)]
        self._spawn("bus", program, {"PYTHONPATH": f"tests{os.pathsep}."})
        until = time.monotonic() + _READY_SECONDS
        while not (folder / "ready").exists():
            self.check()
            if time.monotonic() > until:
                raise DemoError(f"After {_READY_SECONDS:g} s the {bus} broker does not respond.")
            time.sleep(0.1)

    def _make_ledger(self) -> None:
        """Create the ledger once, before a dozen processes open it at the same time."""
        settings = product_settings(self.config)
        if self.config.ledger_port:
            Ledger.migrate(settings["EVENTBRIDGE_LEDGER_URL"])
        open_runtime(Settings.from_mapping(settings), connections_from_environment(settings)).close()

    def _airflow(self, *arguments: str) -> None:
        log = self.config.logs / f"airflow-{arguments[0]}.log"
        with log.open("wb") as output:
            done = subprocess.run(
                ["airflow", *arguments],
                env=environment(self.config, os.environ),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise DemoError(f"airflow {' '.join(arguments)} failed: {_last_words(log)}")

    def _spawn(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        self._commands[name] = command
        settings = environment(self.config, os.environ) | dict(environ or {})
        if name in _WAITS_FOR_LOCKS:
            settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] += f"?timeout={_LOCK_SECONDS}"
        with (self.config.logs / f"{name}.log").open("ab") as output:  # a restarted service appends to it
            process = subprocess.Popen(
                command,
                env=settings,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # to be stopped as a group, and not by the terminal's Ctrl-C
            )
        if name in self.low_priority:
            lower_priority(process.pid)
        self._children.append(process)
        self._add(name, process.pid)

    def _add(self, name: str, pid: int) -> None:
        self.groups[name] = pid
        self._note_pids()

    def _note_pids(self) -> None:
        if self.config.folder.exists():
            note_groups(self.config.folder, self.groups)

    def _wait_for_airflow(self) -> None:
        until = time.monotonic() + _READY_SECONDS
        while True:
            self.check()
            waiting = _unhealthy(self.config.url)
            if not waiting:
                return
            if time.monotonic() > until:
                raise DemoError(f"After {_READY_SECONDS:g} s {', '.join(waiting)} of Airflow is not healthy.")
            time.sleep(0.3)


def note_groups(folder: Path, groups: Mapping[str, int]) -> None:
    """Record process groups by name, with their start times, so that `orphaned_groups` recognises them."""
    started = {name: [pid, _started(pid)] for name, pid in list(groups.items())}
    beside = folder / f"{_PIDS}.new"
    beside.write_text(json.dumps(started))
    beside.replace(folder / _PIDS)  # a reader sees the old or the new file, never a part


def orphaned_groups(folder: Path = FOLDER) -> dict[str, int]:
    """Return the process groups of an environment that still run, by name; ignores reused process ids."""
    try:
        noted = json.loads((folder / _PIDS).read_text())
    except FileNotFoundError:
        return {}
    return {name: pid for name, (pid, started) in noted.items() if started is not None and _started(pid) == started}


def stop_groups(groups: dict[str, int]) -> None:
    """Stop process groups: SIGTERM to their leaders, then to all their members, then SIGKILL."""
    _signal(groups, os.kill, signal.SIGTERM)
    if not _have_ended(groups, _GRACE_SECONDS):
        _signal(groups, os.killpg, signal.SIGTERM)
        _have_ended(groups, _GRACE_SECONDS / 4)
    _signal(groups, os.killpg, signal.SIGKILL)  # its children may outlive a leader
    _have_ended(groups, _GRACE_SECONDS)
    _wait_for_members(set(groups.values()))


def lower_priority(pid: int) -> None:
    """Lower the CPU priority of a session, given its leader: Linux may schedule by session before it schedules by
    niceness.

    Ignores a session that has ended.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.nice(max(process.nice(), OLD_NICENESS))
    # FileNotFoundError: sched_autogroup_enabled is 0, see sched(7), or the process has ended. BlockingIOError: Linux
    # accepts only ten changes a second.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, BlockingIOError):
        Path(f"/proc/{pid}/autogroup").write_text(f"{OLD_NICENESS}")


def _signal(groups: dict[str, int], send: Callable[[int, int], None], number: signal.Signals) -> None:
    for pid in list(groups.values()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def _have_ended(groups: dict[str, int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while any(_is_running(pid) for pid in list(groups.values())):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def _wait_for_members(groups: set[int]) -> None:
    """Wait for the killed members of process groups, which may hold a port or a lock of their service for a moment."""
    until = time.monotonic() + _GRACE_SECONDS
    while any(_group_of(process) in groups for process in psutil.process_iter()) and time.monotonic() < until:
        time.sleep(0.05)


def _group_of(process: psutil.Process) -> int | None:
    """Return a process's group, or None if the process has ended."""
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else os.getpgid(process.pid)
    except (psutil.Error, ProcessLookupError):
        return None


def _is_running(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # reap an ended child, so that it is no zombie
    return _started(pid) is not None


def _started(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def _is_up(url: str) -> bool:
    try:
        return httpx.head(url, timeout=5).is_success
    except httpx.HTTPError:
        return False


def _unhealthy(url: str) -> list[str]:
    try:
        health = httpx.get(f"{url}/api/v2/monitor/health", timeout=5).json()
    except (httpx.HTTPError, ValueError):
        return ["api-server"]
    return [name for name, state in health.items() if state.get("status") != "healthy"]


def _last_words(log: Path) -> str:
    lines = [line for line in _tail(log) if line.strip()]
    return f"{lines[-1].strip() if lines else 'no output'} ({log})"


def _tail(log: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        yield from log.read_text(errors="replace")[-4_000:].splitlines()
