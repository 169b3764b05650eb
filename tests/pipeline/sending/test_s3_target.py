"""A bucket target gets one object for each span of deliveries, which a repetition overwrites."""

from __future__ import annotations

import json
import re
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from demo.s3_server import S3Request, S3Server, connection_uri
from pipeline.conftest import Killed, dying_at
from pipeline.delivering import RunningClock, Sending, routed, segment_rows
from stored import dead_letters

from eventbridge.clients.s3.access import S3Access
from eventbridge.clients.s3.upload import PART_BYTES
from eventbridge.config.connection import connections_from_environment
from eventbridge.delivery.push import push
from eventbridge.model.pending import PendingDeliveries
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.s3 import S3Store

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "connect-s3.md").read_text()
(EXAMPLE,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

#: Of the bus: each has a delivery file of its own in a small batch, and so a span.
QUEUES = 2

RETRY = "retry: {policy: custom, max_retries: 5, initial_delay: 1h, multiplier: 1, max_delay: 1h, jitter: 0}"

#: Also where the machine is busy: what a budget ends is pending.
PATIENT = {"prepare_timeout": 600, "push_timeout": 600, "batch_timeout": 3600}

KEY = re.compile(r"date=\d{4}-\d\d-\d\d/hour=\d\d/[0-9a-f-]{36}-[0-9a-f]{32}\.jsonl")

Order = Callable[..., bytes]


@dataclass
class Bucket:
    """What lies below a prefix of its own, and what was tried to be written there."""

    server: S3Server
    prefix: str

    @property
    def target(self) -> str:
        """A target that writes there, as flow YAML without its end."""
        return f"{{type: s3, connection: shop_s3, bucket: tests, prefix: {self.prefix}, timeout: 1s, {RETRY}"

    @property
    def store(self) -> S3Store:
        connection = connections_from_environment({"EVENTBRIDGE_CONN_IT": self.server.connection})("it")
        return S3Store("tests", self.prefix, lambda: S3Access.from_connection(connection))

    def objects(self, below: str = "") -> dict[str, list[str]]:
        """Return the ids of the events in each object."""
        found = {key: self.store.get(key) for key in self.store.list(below)}
        return {key: [json.loads(line)["id"] for line in text.splitlines()] for key, text in found.items()}

    def tried(self) -> set[str]:
        """Return the keys that were written, or were to be."""
        paths = {request.path for request in self.server.requests if request.is_put}
        return {path.removeprefix(f"/tests/{self.prefix}/") for path in paths}


@pytest.fixture
def bucket(sending: Sending, s3_server: S3Server) -> Bucket:
    """An empty place on the server; the connection shop_s3 leads there."""
    sending.site.environ["EVENTBRIDGE_CONN_SHOP_S3"] = s3_server.connection
    return Bucket(s3_server, uuid.uuid4().hex)


def refuse(code: str) -> Callable[[S3Request], str | None]:
    return lambda request: code if request.is_put else None


def ids_in(found: Mapping[str, list[str]]) -> list[str]:
    """Return the ids in all objects, in order."""
    return sorted((each for ids in found.values() for each in ids), key=int)


def waiting(sending: Sending) -> list[PendingDeliveries]:
    """Return the rows that are pending now."""
    return [row for row in sending.runtime.ledger.pending.find() if row.state == "scheduled"]


def numbers(*counts: int) -> list[str]:
    return [str(number) for number in range(*counts)]


def test_the_pages_example_delivers_an_object(sending: Sending, bucket: Bucket, order: Order) -> None:
    """In a folder by date and hour, a line for each delivery."""
    rules = EXAMPLE.replace("bucket: orders", "bucket: tests").replace("prefix: ", f"prefix: {bucket.prefix}/")
    sending.write(rules)
    with sending.site.bus(topics=("events",)) as bus:
        bus.publish([(order(str(number), data={"amount": 2_000}), None) for number in range(1, 6)])
    sending.deliver()

    found = bucket.objects()
    assert all(KEY.fullmatch(key.removeprefix("placed/")) for key in found)
    assert ids_in(found) == numbers(1, 6)
    assert audit(sending.runtime).differences == ()


def test_dead_letters_lie_in_the_queues_folder(sending: Sending, bucket: Bucket) -> None:
    """A dead letter queue that is a bucket gets a copy of each dead letter, many in an object."""
    queue = f"{{type: s3, connection: shop_s3, bucket: tests, prefix: {bucket.prefix}}}"
    sending.begin(7, crm=f'{{type: http, url: "/status/400", allow_http: true, dead_letter_queue: {queue}}}')
    sending.deliver()

    (key,) = bucket.store.list("")
    entries = [json.loads(line) for line in bucket.store.get(key).splitlines()]
    assert sorted(dead_letter["event_id"] for dead_letter in entries) == numbers(1, 8)
    assert {dead_letter["reason"] for dead_letter in entries} == {"non_retryable"}
    assert audit(sending.runtime).differences == ()


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_a_permanent_error_dead_letters_the_span(sending: Sending, bucket: Bucket, code: str) -> None:
    """Keys or rights that are wrong: the whole span is dead letters, which say what S3 said, and no key."""
    bucket.server.refuse = refuse(code)
    sending.begin(3, lake=bucket.target + "}")
    sending.deliver()

    entries = list(dead_letters(sending.runtime))
    assert [dead_letter["reason"] for dead_letter in entries] == ["non_retryable"] * 3
    assert all(f"HTTP 403: {code}: " in dead_letter["detail"] for dead_letter in entries)
    assert not any("Signature=" in dead_letter["detail"] for dead_letter in entries)
    assert len(bucket.tried()) == QUEUES
    assert audit(sending.runtime).differences == ()


def test_a_bucket_that_does_not_exist_is_reported(sending: Sending, bucket: Bucket) -> None:
    """Nothing makes buckets."""
    sending.begin(2, lake=bucket.target.replace("bucket: tests", "bucket: nowhere") + "}")
    sending.deliver()

    entries = list(dead_letters(sending.runtime))
    assert ["NoSuchBucket: the bucket does not exist" in dead_letter["detail"] for dead_letter in entries] == [True] * 2


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "ConditionalRequestConflict"])
def test_a_temporary_error_is_retried_under_the_same_name(
    sending: Sending, bucket: Bucket, clock: RunningClock, code: str
) -> None:
    """Each span waits as one row, and is then one object of the name that it had at first."""
    bucket.server.refuse = refuse(code)
    sending.begin(5, lake=bucket.target + "}")
    sending.deliver()
    rows = waiting(sending)
    assert sum(row.count for row in rows) == 5
    assert [(row.reason, row.attempts) for row in rows] == [("retry_scheduled", 1)] * QUEUES
    assert bucket.objects() == {}

    bucket.server.refuse = lambda request: None
    clock.advance(2 * 3600)
    sending.deliver()

    found = bucket.objects()
    assert set(found) == bucket.tried()
    assert len(found) == QUEUES
    assert ids_in(found) == numbers(1, 6)
    assert audit(sending.runtime).differences == ()


def test_a_response_that_is_lost_doubles_nothing(sending: Sending, bucket: Bucket, clock: RunningClock) -> None:
    """The object exists but the response is lost: it is written again, over itself."""
    bucket.server.lose_response = lambda request: request.is_put
    sending.begin(5, lake=bucket.target + "}")
    sending.deliver()
    before = bucket.objects()
    assert len(waiting(sending)) == QUEUES
    bucket.server.lose_response = lambda request: False
    clock.advance(2 * 3600)
    sending.deliver()

    assert before == bucket.objects()
    assert ids_in(before) == numbers(1, 6)
    assert waiting(sending) == []
    assert audit(sending.runtime).differences == ()


@contextmanager
def responding(words: bytes | None) -> Iterator[int]:
    """Yield the port of a server that says so much and breaks off; None: it says nothing, and waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    asked, _ = server.accept()
                except OSError:
                    return
                held.append(asked)
                if words is not None:
                    asked.recv(1)
                    asked.sendall(words)
                    asked.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for each in held:
            each.close()


@pytest.mark.parametrize(
    ("words", "error_class"),
    [(None, "Timeout"), (b"", "NetworkError"), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal", None)],
    ids=["nothing", "broken", "cut short"],
)
def test_a_server_that_does_not_respond_is_tried_again(
    sending: Sending, bucket: Bucket, words: bytes | None, error_class: str | None
) -> None:
    """No response in time, a connection that broke, a response that is cut short (it counts as a 500): spans wait."""
    with responding(words) as port:
        sending.site.environ["EVENTBRIDGE_CONN_SHOP_S3"] = connection_uri(port)
        sending.begin(2, lake=bucket.target + "}")
        sending.deliver()

    assert [(row.count, row.reason) for row in waiting(sending)] == [(1, "retry_scheduled")] * QUEUES
    batches = sending.runtime.ledger.batches.find(limit=None)  # after a timeout the rest is sent in the slow lane
    rows = [row for batch in batches for row in segment_rows(sending.runtime, batch.batch_id)]
    assert [row["error_class"] for row in rows] == [error_class] * QUEUES


def test_spans_that_travel_together_stay_apart(sending: Sending, bucket: Bucket, clock: RunningClock) -> None:
    """Of one file, tried again in one chunk, failing again, taken up again: each keeps its name."""
    bucket.server.refuse = refuse("SlowDown")
    sending.begin(10, settings={"chunk_max_deliveries": 3}, lake=bucket.target + "}")
    sending.deliver()
    first = bucket.tried()
    assert sum(row.count for row in sending.runtime.ledger.pending.find()) == 10
    bucket.server.requests.clear()

    sending.site.reopen()
    for _ in range(2):
        clock.advance(2 * 3600)
        sending.deliver()
    first |= bucket.tried()
    spans = waiting(sending)
    bucket.server.refuse = lambda request: None
    for _ in range(4):
        clock.advance(2 * 3600)
        sending.deliver()

    found = bucket.objects()
    assert len(spans) == len(found) == 4
    assert first <= set(found)
    assert ids_in(found) == numbers(1, 11)
    assert audit(sending.runtime).differences == ()


@pytest.mark.parametrize("point", ["target.send", "target.responded", "store.put.done", "store.create.done"])
def test_a_push_may_die_anywhere(
    sending: Sending, bucket: Bucket, tmp_path: Path, clock: RunningClock, point: str
) -> None:
    """However often it was sent, each delivery is in exactly one object, and the objects have the same names."""
    settings = {"chunk_max_deliveries": 2, **PATIENT}
    batch = routed(sending.begin(5, settings=settings, lake=bucket.target + "}"))
    seen: list[set[str]] = []
    for fatal in range(1, 4):
        clock.ahead = timedelta()
        wreck = sending.site.copy(tmp_path / f"wreck-{fatal}")
        with dying_at(point, fatal) as died:
            push_all(wreck.runtime, batch.batch_id, died)
        assert died or not point.startswith("target.")
        runtime = wreck.reopen()
        for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id):
            push(runtime, batch.batch_id, chunk.chunk_id)
        Sending(wreck, sending.receiver, sending.order).settle(batch)
        assert commit(runtime, batch.batch_id)
        clock.advance(2 * 3600)
        deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store))
        assert audit(runtime).differences == ()
        wreck.close()

        found = bucket.objects()
        assert Counter(each for ids in found.values() for each in ids) == Counter(numbers(1, 6))
        seen.append(set(found))
        bucket.store.delete_all(sorted(found))

    assert seen[0] == seen[1] == seen[2]


def push_all(runtime: Runtime, batch_id: str, died: list[str]) -> None:
    """Push every chunk until the process dies."""
    try:
        for chunk in runtime.ledger.chunks.list_for_batch(batch_id):
            push(runtime, batch_id, chunk.chunk_id)
    except Killed:
        died.append("here")


def test_a_large_span_goes_up_in_parts(sending: Sending, bucket: Bucket, order: Order) -> None:
    """Larger than 16 MiB: still one object, and it is complete."""
    large = [order(str(number), subject="x" * (900 << 10)) for number in range(40)]
    sending.begin(*large, settings=PATIENT, lake=bucket.target + "}")
    sending.deliver()

    found = bucket.objects()
    assert ids_in(found) == numbers(40)
    assert max(len(bucket.store.get(key)) for key in found) > PART_BYTES


def test_parquet_has_the_delivery_ids(sending: Sending, bucket: Bucket) -> None:
    """A row for each delivery: its id and its payload as text."""
    sending.begin(3, lake=bucket.target + ", format: parquet}")
    sending.deliver()

    keys = bucket.store.list("")
    table = pa.concat_tables(pq.read_table(bucket.store.open(key)) for key in keys)
    assert all(key.endswith(".parquet") for key in keys)
    assert sorted(json.loads(text)["id"] for text in table["payload"].to_pylist()) == numbers(1, 4)
    assert all(uuid.UUID(each).version == 8 for each in table["delivery_id"].to_pylist())


def test_a_shadow_writes_and_nothing_becomes_of_its_failures(sending: Sending, bucket: Bucket) -> None:
    """As any shadow."""
    shadow = bucket.target.replace(f", {RETRY}", ", shadow_of: crm")
    bucket.server.refuse = refuse("SlowDown")
    sending.begin(2, crm="/healthy/crm", lake=shadow + "}")
    sending.deliver()

    assert sending.runtime.ledger.pending.find() == []
    assert len(bucket.tried()) == QUEUES
    assert audit(sending.runtime).differences == ()
