"""A token of right `read` cannot occupy the server: reads of the store are few, small, and end with their callers."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from api.server import Installation, Server, order

from eventbridge.api.call_pools import MAX_STORE_READS, MAX_WAITING_STORE_READS
from eventbridge.model.batch import BatchFile
from eventbridge.store import layout
from eventbridge.store.parquet import read_table, write_table

#: Long enough for a busy machine, and far less than all of these reads take.
SOON = 15.0
#: As many calls as a reader with a few dozen connections has in progress.
CALLS = 42
#: Far more than the reads that run at a time need, and far less than all of these calls.
MAX_MEMORY = 700 << 20
#: A page of a search reads so many files at most, of so many bytes.
FILES, FILE_BYTES = 50, 24 << 20
#: No event has this subject, and each body has an escape: the search has to parse all of them.
SEARCH = "/events?bus=orders&subject=nobody"


class Started(Installation):
    """An installation whose server is a process by itself, not a fork: the test reads its memory."""

    def command(self, *arguments: str) -> list[str]:
        """Return a call of the command line."""
        if arguments[0] != "serve":
            return super().command(*arguments)
        return [sys.executable, "-m", "eventbridge.cli", *arguments]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An installation with an archive of a gigabyte, whose events a search has to parse."""
    folder = tmp_path_factory.mktemp("large")
    made = Started(folder)
    (folder / "orders.jsonl").write_text(json.dumps(order(1)))
    made.run("bus", "publish", "orders", str(folder / "orders.jsonl"))
    made.deliver("orders")
    body = json.dumps(order(1, data={"text": "\ud800" * 2_000})).encode()
    with made.opened() as runtime:
        (batch,) = runtime.ledger.batches.find()
        (landed,) = (each for each in runtime.ledger.files.of_batch(batch.batch_id, "buffer") if each.path)
        assert landed.path is not None
        rows = FILE_BYTES // len(body)
        event = read_table(runtime.store, landed.path)
        event = event.set_column(event.schema.get_field_index("body"), event.schema.field("body"), pa.array([body]))
        many = pa.concat_tables([event] * rows).combine_chunks()
        for number in range(FILES):
            path = layout.buffer("orders", batch.planned_at, batch.batch_id, f"{number:032x}")
            write_table(runtime.store, path, many)
            file = BatchFile(batch.batch_id, "buffer", f"more-{number:02}", path, rows, landed.detail)
            assert runtime.ledger.files.record(file, "committed")
    return made


@pytest.fixture
def attacked(large: Installation) -> Iterator[Server]:
    """A server of its own."""
    with Server(large) as running:
        yield running


@pytest.fixture(scope="module")
def headers(large: Installation) -> dict[str, str]:
    """The header of a token that may read, and search by subject."""
    return {"authorization": f"Bearer {large.token('reader', 'read', 'payloads')}"}


@contextmanager
def calling(server: Server, headers: dict[str, str], count: int, seconds: float) -> Iterator[list[httpx.Response]]:
    """Search so many times at once during the block, leave after so many seconds; yields the responses so far."""
    responses: list[httpx.Response] = []

    def search() -> None:
        with suppress(httpx.HTTPError):
            responses.append(httpx.get(server.url + SEARCH, headers=headers, timeout=seconds))

    threads = [threading.Thread(target=search) for _ in range(count)]
    for each in threads:
        each.start()
    try:
        yield responses
    finally:
        for each in threads:
            each.join()


def most_memory(server: Server) -> int:
    """Return the most memory that the process of a server has had."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError


def test_searches_end_with_their_callers(attacked: Server, headers: dict[str, str]) -> None:
    """Calls whose clients left hold neither threads nor memory: the next search runs at once."""
    with calling(attacked, headers, CALLS, seconds=3.0):
        pass
    began = time.monotonic()
    with httpx.Client(base_url=attacked.url, headers=headers, timeout=60) as client:
        responses = [client.get(path) for path in ("/events?bus=orders&limit=1", "/rules", "/batches", "/health")]

    assert [each.status_code for each in responses] == [200] * 4
    assert time.monotonic() - began < SOON
    assert most_memory(attacked) < MAX_MEMORY


def test_searches_end_with_the_server(attacked: Server, headers: dict[str, str]) -> None:
    """SIGTERM does not wait for searches."""
    with calling(attacked, headers, CALLS, seconds=60.0):
        time.sleep(2.0)
        began = time.monotonic()
        code, _ = attacked.end(signal.SIGTERM)
        took = time.monotonic() - began

    assert code == 0
    assert took < SOON


def test_searches_that_find_no_place_are_refused(attacked: Server, headers: dict[str, str]) -> None:
    """They get 503 with Retry-After, and calls that do not read the store are not affected."""
    with (
        calling(attacked, headers, MAX_STORE_READS + MAX_WAITING_STORE_READS + 5, seconds=10.0) as searches,
        httpx.Client(base_url=attacked.url, headers=headers, timeout=60) as client,
    ):
        times = []
        for path in ("/rules", "/status", "/health", "/targets", "/stats"):
            before = time.monotonic()
            assert client.get(path).status_code == 200
            times.append(time.monotonic() - before)
    refused = [each for each in searches if each.status_code == 503]

    assert max(times) < SOON
    assert len(refused) >= 5
    assert all(int(each.headers["retry-after"]) > 0 for each in refused)
    assert all("busy" in each.json()["detail"] for each in refused)
