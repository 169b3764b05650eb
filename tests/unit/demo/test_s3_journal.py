"""The S3 server of tests and demo, killed and started again: with its journal it has what it had responded for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from demo.ports import reserve
from demo.s3_server import connection_uri

from eventbridge.clients.s3.upload import PART_BYTES
from eventbridge.config.connection import connections_from_environment
from eventbridge.errors import StoreFileMissing
from eventbridge.store.open import open_store
from eventbridge.store.protocol import Store

LARGE = b"0123456789abcdef" * (PART_BYTES // 16) + b"and a second part"
BUCKET = "kept"

#: Kills the server that runs, if one does, starts another one with the same journal, and returns a store on it.
Again = Callable[[], Store]


@pytest.fixture
def again(tmp_path: Path) -> Iterator[Again]:
    """Servers in processes of their own: those within one process have one memory."""
    port = reserve()
    running: list[subprocess.Popen[bytes]] = []

    def start() -> Store:
        for process in running:
            process.kill()
            process.wait(30)
        command = [sys.executable, "-m", "demo.s3_server", "--port", str(port), "--bucket", BUCKET]
        running.append(subprocess.Popen([*command, "--journal", str(tmp_path / "journal")]))
        end = time.monotonic() + 60
        while not _is_up(port):
            assert time.monotonic() < end
            time.sleep(0.02)
        connections = connections_from_environment({"EVENTBRIDGE_CONN_KEPT": connection_uri(port)})
        return open_store(f"s3://kept@{BUCKET}/below", connections)

    yield start
    for process in running:
        process.kill()
        process.wait(30)


def _is_up(port: int) -> bool:
    try:
        return httpx.head(f"http://127.0.0.1:{port}/{BUCKET}", timeout=5).is_success
    except httpx.HTTPError:
        return False


def test_a_server_that_is_killed_and_started_again_has_what_it_had(again: Again) -> None:
    """Files by pyarrow and by boto3, replaced, deleted, created once and in parts; and that one was created."""
    store = again()
    store.put("put", b"first")
    store.put("put", b"second")
    store.put("deleted", b"gone")
    store.delete("deleted")
    assert store.create("created", b"winner")
    assert store.create("large", LARGE)

    store = again()

    assert store.list("") == ["created", "large", "put"]
    assert (store.get("put"), store.get("large")) == (b"second", LARGE)
    assert not store.create("created", b"loser")
    assert store.get("created") == b"winner"
    with pytest.raises(StoreFileMissing):
        store.get("deleted")


def test_a_request_without_a_response_is_not_recorded(again: Again, tmp_path: Path) -> None:
    """A line that was cut short by the kill is not a request, and the next one begins in its place."""
    store = again()
    store.put("whole", b"1")
    store.put("cut", b"2")
    with (tmp_path / "journal").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 3)

    store = again()
    assert store.list("") == ["whole"]
    store.put("next", b"3")

    assert again().list("") == ["next", "whole"]
