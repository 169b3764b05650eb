"""A token of right `read` cannot occupy the server: reads of the store are few, small, and end with their callers."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
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
from eventbridge.store.schemas import BUFFER
from eventbridge.views.trace.search import MAX_MESSAGES

#: Long enough for a busy machine, and far less than all of these reads take.
SOON = 15.0
#: As many calls as a reader with a few dozen connections has in progress.
CALLS = 42
#: Far more than the reads that run at a time need, and far less than all of these calls.
MAX_MEMORY = 700 << 20
#: A page of a search reads so many files at most, of so many bytes.
FILES, FILE_BYTES = 50, 24 << 20
#: No event has this subject, and each body has an escape: the search has to parse all of them.
SEARCH = "/v1/events?bus=orders&subject=nobody"
#: All events have this id.
TRACE = "/v1/events/o1"


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
    made.run("events", "publish", "orders", str(folder / "orders.jsonl"))
    made.deliver("orders")
    body = json.dumps(order(1, data={"text": "\ud800" * 2_000})).encode()
    with made.opened() as runtime:
        (batch,) = runtime.ledger.batches.find()
        (landed,) = (each for each in runtime.ledger.files.list_for_batch(batch.batch_id, "buffer") if each.path)
        assert landed.path is not None
        rows, offset = FILE_BYTES // len(body), BUFFER.field("offset")
        event = read_table(runtime.store, landed.path)
        event = event.set_column(event.schema.get_field_index("body"), event.schema.field("body"), pa.array([body]))
        many = pa.concat_tables([event] * rows).combine_chunks()
        for number in range(FILES):
            path = layout.buffer("orders", batch.planned_at, batch.batch_id, f"{number:032x}")
            numbers = pa.array(range(number * rows + 1, (number + 1) * rows + 1), pa.int64())
            write_table(runtime.store, path, many.set_column(many.schema.get_field_index("offset"), offset, numbers))
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
    """The header of a token that may read, search by subject, and read the metrics."""
    return {"authorization": f"Bearer {large.token('reader', 'read', 'payloads', 'metrics')}"}


@contextmanager
def calling(
    server: Server, headers: dict[str, str], paths: Sequence[str], seconds: float
) -> Iterator[list[httpx.Response]]:
    """Get all paths at once during the block, and leave after so many seconds; yields the responses so far."""
    responses: list[httpx.Response] = []

    def get(path: str) -> None:
        with suppress(httpx.HTTPError):
            responses.append(httpx.get(server.url + path, headers=headers, timeout=seconds))

    threads = [threading.Thread(target=get, args=(path,)) for path in paths]
    for each in threads:
        each.start()
    try:
        yield responses
    finally:
        for each in threads:
            each.join()


def max_memory(server: Server) -> int:
    """Return the most memory that the process of a server has had."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError


@pytest.mark.parametrize("call", [SEARCH, TRACE])
def test_reads_end_with_their_callers(call: str, attacked: Server, headers: dict[str, str]) -> None:
    """Calls whose clients left hold neither threads nor memory: the next read runs at once."""
    with calling(attacked, headers, [call] * CALLS, seconds=3.0):
        pass
    began = time.monotonic()
    with httpx.Client(base_url=attacked.url, headers=headers, timeout=60) as client:
        responses = [
            client.get(path) for path in ("/v1/events?bus=orders&limit=1", "/v1/rules", "/v1/batches", "/health")
        ]

    assert [each.status_code for each in responses] == [200] * 4
    assert time.monotonic() - began < SOON
    assert max_memory(attacked) < MAX_MEMORY


@pytest.mark.parametrize("call", [SEARCH, TRACE])
def test_reads_end_with_the_server(call: str, attacked: Server, headers: dict[str, str]) -> None:
    """SIGTERM does not wait for reads of the store."""
    with calling(attacked, headers, [call] * CALLS, seconds=60.0):
        time.sleep(2.0)
        began = time.monotonic()
        code, _ = attacked.end(signal.SIGTERM)
        took = time.monotonic() - began

    assert code == 0
    assert took < SOON


def test_reads_that_find_no_place_are_refused(attacked: Server, headers: dict[str, str]) -> None:
    """They get 503 with Retry-After, and calls that do not read the store are not affected."""
    paths = [SEARCH] * (MAX_STORE_READS + MAX_WAITING_STORE_READS) + [TRACE] * 20
    with (
        calling(attacked, headers, paths, seconds=10.0) as reads,
        httpx.Client(base_url=attacked.url, headers=headers, timeout=60) as client,
    ):
        times = []
        for path in ("/v1/rules", "/v1/status", "/metrics", "/health", "/v1/targets", "/v1/stats"):
            before = time.monotonic()
            assert client.get(path).status_code == 200
            times.append(time.monotonic() - before)
    refused = [each for each in reads if each.status_code == 503]

    assert max(times) < SOON
    assert refused
    assert all(int(each.headers["retry-after"]) > 0 for each in refused)
    assert all("busy" in each.json()["detail"] for each in refused)


def test_a_trace_names_the_messages_that_it_leaves_out(attacked: Server, headers: dict[str, str]) -> None:
    """An id that thousands of events have is traced for the first ones, and the response says so."""
    found = httpx.get(attacked.url + TRACE, headers=headers, timeout=60).json()

    assert len(found["events"]) == MAX_MESSAGES
    assert any(f"more than {MAX_MESSAGES} archived messages have this id" in note for note in found["notes"])
