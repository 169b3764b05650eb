"""A bus of SQS queues, on moto's server, receives, lands and records messages before it deletes them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pipeline.broker_shop import deliver, delivered, example_of
from pipeline.streaming_tasks import until
from stored import dead_letters

from eventbridge.clients.s3.access import S3Access
from eventbridge.errors import BusError
from eventbridge.repair.audit import audit
from eventbridge.runtime.stop import Stop
from eventbridge.sources.sqs.queue import SqsQueue
from eventbridge.streaming.task import deliver_streaming

Order = Callable[..., bytes]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of a server that speaks SQS."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def sqs(endpoint: str) -> Any:
    """Provide AWS's client for that server."""
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    return boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1", **keys)


def access(endpoint: str) -> S3Access:
    return S3Access(region="us-east-1", endpoint=endpoint, access_key="k", secret_key="s")


def queue_of_the_page(site: Any, sqs: Any, endpoint: str, folder: Path) -> str:
    """Make the queue of the connector page's example, write its rules with their files in `folder`; return its URL."""
    url: str = sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    site.environ["EVENTBRIDGE_CONN_SHOP_SQS"] = (
        f"aws://k:s@/?region_name=us-east-1&endpoint_url={quote(endpoint, safe='')}"
    )
    site.write_rules(example_of("sqs", "rules").replace("path: orders/", f"path: {folder}/"))
    return url


def test_events_of_a_queue_are_delivered_and_deleted(
    site: Any, sqs: Any, endpoint: str, order: Order, tmp_path: Path
) -> None:
    """The page's example delivers each event once and reconciles, in both modes; an invalid event is a dead letter."""
    url = queue_of_the_page(site, sqs, endpoint, tmp_path)
    attributes = {"ce-specversion": "1.0", "ce-type": "order.placed", "ce-source": "/shop", "ce-id": "binary"}
    attributes["content-type"] = "application/json"
    typed = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
    for number in range(12):
        body = order(str(number), 2000).decode()
        sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=f"g{number % 2}", MessageDeduplicationId=f"{number}"
        )
    sqs.send_message(
        QueueUrl=url,
        MessageBody=json.dumps({"amount": 2000}),
        MessageGroupId="g",
        MessageDeduplicationId="b",
        MessageAttributes=typed,
    )
    sqs.send_message(QueueUrl=url, MessageBody="no JSON", MessageGroupId="g", MessageDeduplicationId="c")
    deliver(site)
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]

    assert delivered(tmp_path) == sorted([*map(str, range(12)), "binary"])
    assert [left[f"ApproximateNumberOfMessages{which}"] for which in ("", "NotVisible")] == ["0", "0"]
    assert audit(site.runtime).differences == ()
    assert [dead_letter["reason"] for dead_letter in dead_letters(site.runtime)] == ["malformed"]


def test_a_streaming_task_delivers_what_comes_to_a_queue(
    site: Any, sqs: Any, endpoint: str, order: Order, tmp_path: Path
) -> None:
    """A streaming task ingests messages once a second and delivers each once, and none is left in the queue."""
    url = queue_of_the_page(site, sqs, endpoint, tmp_path)
    runtime, stop = site.runtime, Stop()

    def send(number: int) -> None:
        body, name = order(str(number), 2000).decode(), f"streaming-{number}"
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g", MessageDeduplicationId=name)

    with ThreadPoolExecutor(1) as pool:
        summary = pool.submit(deliver_streaming, runtime, "orders", stop)
        try:
            for number in (1, 2):  # the first or the second read ingests both
                send(number)
            until(lambda: (tmp_path / "big.jsonl").exists() and delivered(tmp_path) == ["1", "2"])
            assert runtime.ledger.batches.find(state="open")
            send(3)
            until(lambda: delivered(tmp_path) == ["1", "2", "3"])
        finally:
            stop.set()
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]

    assert summary.result().events == 3
    assert [left[f"ApproximateNumberOfMessages{which}"] for which in ("", "NotVisible")] == ["0", "0"]
    assert audit(runtime).differences == ()


def test_messages_are_held_extended_and_deleted(sqs: Any, endpoint: str) -> None:
    """More messages than one request holds are extended and deleted; an expired receipt is ignored."""
    url = sqs.create_queue(QueueName="held")["QueueUrl"]
    for number in range(11):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    with closing(SqsQueue(access(endpoint), "held", 30.0)) as queue:
        assert queue.waiting() == 11
        rows = queue.receive(100).to_pylist()
        assert sorted(int(row["body"]) for row in rows) == list(range(11))
        receipts = queue.extend([row["receipt"] for row in rows])
        queue.acknowledge(receipts)
        queue.acknowledge(receipts)
        assert (queue.waiting(), queue.receive(1).num_rows) == (0, 0)


def test_a_queue_that_does_not_exist_is_reported(endpoint: str) -> None:
    """A missing queue is reported with its name and a remedy."""
    with (
        closing(SqsQueue(access(endpoint), "nowhere", 30.0)) as queue,
        pytest.raises(BusError, match=r"'nowhere'.*Create"),
    ):
        queue.receive(1)


_SAID = (
    b'{"__type": "com.amazon.coral.service#InvalidClientTokenId", "message": "The security token is invalid"}',
    b'{"QueueUrl": "http',
    b"",
)


@pytest.mark.parametrize(
    ("status", "said", "reported"),
    [
        (b"403 Forbidden", _SAID[0], "InvalidClientTokenId.*Correct login and password"),
        (b"200 OK", _SAID[1], "cut short.*Correct endpoint_url"),
        (b"", _SAID[2], "closed before.*Correct endpoint_url"),
    ],
    ids=["wrong keys", "half a response", "no response"],
)
def test_a_server_that_refuses_or_says_half_is_reported(status: bytes, said: bytes, reported: str) -> None:
    """A server that refuses or sends an incomplete response is reported with the queue and a remedy."""
    head = b"HTTP/1.1 %s\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\n\r\n"
    head %= status, len(_SAID[0])
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, connection.makefile("rb") as asked:
                    # read to the last byte, because closing earlier would reset the connection and lose the response
                    length = next(int(line[15:]) for line in asked if line.lower().startswith(b"content-length:"))
                    while asked.readline().strip():
                        pass
                    asked.read(length)
                    connection.sendall(head + said if status else b"")

    threading.Thread(target=serve, daemon=True).start()
    there = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with (
        listening,
        closing(SqsQueue(access(there), "orders", 30.0)) as queue,
        pytest.raises(BusError, match=f"'orders': .*{reported}"),
    ):
        queue.receive(1)
