"""s3proxy: an S3 server that is not ours, with its data in a folder; it checks signatures and excludes writers itself.

Fetched by Maven into `.s3proxy/`, and taken only if it is, byte for byte, the one that was tried.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.ports import reserve
from demo.s3_server import ACCESS_KEY, SECRET_KEY
from java_tools import ToolMissing, fetch, java_program, require

HERE: Final = Path(__file__).parent
FETCHED: Final = HERE.parents[1] / ".s3proxy"
JAR: Final = FETCHED / "s3proxy-4.1.0-jar-with-dependencies.jar"
SHA256: Final = "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d"

_CONFIGURATION = """\
s3proxy.authorization=aws-v4
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.identity={identity}
s3proxy.credential={credential}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}/data
"""
_START_SECONDS = 60.0
_END_SECONDS = 10.0


@contextmanager
def s3proxy(folder: Path) -> Iterator[int]:
    """Run it for the block, on 127.0.0.1 with its data in `folder`, for the keys of the tests; yields its port.

    Raises ToolMissing where it cannot be had, or does not start.
    """
    jar = fetch_s3proxy()
    (folder / "data").mkdir(parents=True)
    port = reserve()
    configuration = folder / "s3proxy.conf"
    configuration.write_text(
        _CONFIGURATION.format(port=port, identity=ACCESS_KEY, credential=SECRET_KEY, folder=folder)
    )
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(jar)]
    command = [java_program("java"), *options, "--properties", str(configuration)]
    with running("s3proxy", command, port, folder):
        yield port


@contextmanager
def running(
    name: str, command: Sequence[str], port: int, folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server for the block, which begins once it listens; raises ToolMissing if it does not start."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(name, process, port, folder / f"{name}.log")
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > end:
            words = log.read_text(errors="replace").strip()[-500:]
            raise ToolMissing(f"{name} does not start: {words or 'it says nothing'}")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def fetch_s3proxy() -> Path:
    """Return the jar, which Maven fetches if it is not there; raises ToolMissing."""
    require(java_program("java"), "Java, 17 or later,", "openjdk-17-jre-headless")
    if not JAR.exists():
        own = FETCHED.with_name(f"{FETCHED.name}-{os.getpid()}")  # another process may fetch it now
        try:
            fetch("s3proxy", HERE / "pom.xml", own)
            FETCHED.mkdir(exist_ok=True)
            (own / JAR.name).replace(JAR)
        finally:
            shutil.rmtree(own, ignore_errors=True)
    with JAR.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise ToolMissing(f"{JAR} has the checksum {found}, and not {SHA256}: another file than was tried. Remove it.")
    return JAR
