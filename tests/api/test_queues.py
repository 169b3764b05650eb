"""Consumers receive the deliveries of a queue by HTTP and by the Python client, on a real server."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from api.server import Installation, Server, order

from eventbridge.client import ApiError, Delivery, EventBridgeClient

RULES = """
buses:
  orders: {source: {type: embedded, start_at: earliest}}
rules:
  shipped:
    bus: orders
    owner: crm
    pattern: {type: [order.placed]}
    targets: {pull: {type: queue, queue: shipping, retry: {policy: custom, max_retries: 1, initial_delay: 0s}}}
  paid:
    bus: orders
    pattern: {type: [order.paid]}
    targets: {pull: {type: queue, queue: payments, retry: {policy: custom, max_retries: 0}}}
"""


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two queues, `shipping` of the owner crm and `payments`."""
    installation = Installation(tmp_path_factory.mktemp("queued"))
    (installation.folder / "rules" / "orders.yaml").write_text(RULES)
    with Server(installation) as running:
        yield running


@pytest.fixture(scope="module")
def client(queued: Server) -> Iterator[EventBridgeClient]:
    """A client that may publish to every bus and consume every queue."""
    token = queued.installation.token("worker", "publish:*", "consume:*", "read", "operate")
    with EventBridgeClient(queued.url, token) as opened:
        yield opened


def queue_some(queued: Server, client: EventBridgeClient, *numbers: int, kind: str = "order.placed") -> None:
    client.publish("orders", [order(number, type=kind) for number in numbers])
    queued.installation.deliver("orders")


def events_of(deliveries: Sequence[Delivery]) -> list[str]:
    return sorted(json.loads(each.payload)["id"] for each in deliveries)


def test_a_worker_receives_and_acknowledges(queued: Server, client: EventBridgeClient) -> None:
    """The payload is the event; once acknowledged, a delivery is delivered in the books."""
    queue_some(queued, client, 1, 2)
    got = client.receive("shipping", 10)
    assert events_of(got) == ["o1", "o2"]
    assert client.receive("shipping", wait="0s") == ()
    (status,) = [each for each in client.items("queues") if each["queue"] == "shipping"]
    assert (status["ready"], status["received"]) == (0, 2)
    done = client.acknowledge("shipping", got)
    again = client.acknowledge("shipping", got)
    queued.installation.deliver("orders")

    assert (done.done, done.expired, again) == (2, (), done)
    assert {each.attempt for each in got} == {1}
    (trace,) = client.get("events", "o1", bus="orders")["events"]
    assert "delivered" in json.dumps(trace["steps"])


def test_a_call_waits_until_a_delivery_is_there(queued: Server, client: EventBridgeClient) -> None:
    """A waiting consumer gets a delivery as soon as a push has put it into the queue."""
    found: list[Sequence[Delivery]] = []
    worker = threading.Thread(target=lambda: found.append(client.receive("shipping", wait="20s")))
    with EventBridgeClient(queued.url, queued.installation.token("other", "publish:*")) as other:
        worker.start()
        queue_some(queued, other, 3)
    worker.join(30)

    assert [events_of(each) for each in found] == [["o3"]]
    client.acknowledge("shipping", found[0])


def test_consumers_that_are_gone_receive_nothing(queued: Server, client: EventBridgeClient) -> None:
    """Calls that wait when their consumers disconnect take no delivery, whose attempt would count in vain."""
    queue_some(queued, client, 7)
    client.change_target("shipped", "pull", "pause")
    token = queued.installation.token("gone", "consume:shipping")
    url = httpx.URL(queued.url)
    body = b'{"wait": "20s"}'
    head = f"POST /v1/queues/shipping/receive HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    consumers = [socket.create_connection((url.host, url.port)) for _ in range(40)]
    for each in consumers:
        each.sendall(head.encode() + body)
    assert client.receive("shipping", wait="1s") == ()
    for each in consumers:
        each.close()
    client.change_target("shipped", "pull", "resume")
    got = client.receive("shipping", wait="5s")
    client.acknowledge("shipping", got)

    assert [(*events_of([each]), each.attempt) for each in got] == [("o7", 1)]


def test_a_consumer_of_one_owner_ends_no_attempt_of_another(queued: Server, client: EventBridgeClient) -> None:
    """Its token hides the other's rule, and with it the retry policy, which decides what happens next."""
    queue_some(queued, client, 8, kind="order.paid")
    assert len(client.receive("payments", visibility_timeout="1s")) == 1
    token = queued.installation.token("crm-reader", "consume:*", owners=["crm"])
    with EventBridgeClient(queued.url, token) as other:
        assert other.receive("shipping", wait="1500ms") == ()
    assert client.receive("payments", wait="0s") == ()
    queued.installation.deliver("orders")

    (letter,) = client.dead_letters(rule="paid")
    assert letter.detail == "VisibilityExpired, attempt 1 of 1"


WORKER = """
import os, sys
from eventbridge.client import EventBridgeClient
with EventBridgeClient(sys.argv[1], sys.argv[2]) as client:
    (got,) = client.receive("shipping", visibility_timeout="1s")
    print(got.delivery_id, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_killed_worker_loses_nothing(queued: Server, client: EventBridgeClient) -> None:
    """What it had received comes to another worker after the visibility timeout, with the attempt counted."""
    queue_some(queued, client, 4)
    token = queued.installation.token("killed", "consume:shipping")
    killed = subprocess.run([sys.executable, "-c", WORKER, queued.url, token], capture_output=True, text=True)
    (got,) = client.receive("shipping", wait="10s")

    assert (killed.returncode, killed.stdout.strip()) == (-9, got.delivery_id)
    assert got.attempt == 2
    assert client.acknowledge("shipping", [got]).done == 1


def test_a_worker_keeps_or_gives_back_what_it_has(queued: Server, client: EventBridgeClient) -> None:
    """After the last attempt of the retry policy, a delivery that is given back is a dead letter with the reason."""
    queue_some(queued, client, 5)
    first = client.receive("shipping", visibility_timeout="1s")
    assert client.extend("shipping", first, "10m").done == 1
    assert client.release("shipping", first, error="no \x00 stock").done == 1
    second = client.receive("shipping")
    assert [each.attempt for each in (*first, *second)] == [1, 2]
    assert client.acknowledge("shipping", first).expired == (first[0].receipt,)
    assert client.release("shipping", second, error="no stock").done == 1
    queued.installation.deliver("orders")

    (letter,) = client.dead_letters(rule="shipped")
    assert letter.detail == "Released: no stock, attempt 2 of 2"


def test_a_token_consumes_only_what_it_may(queued: Server, client: EventBridgeClient) -> None:
    """It needs a scope for the queue; one with owners sees only deliveries of their rules."""
    tokens = queued.installation.token
    queue_some(queued, client, 6, kind="order.paid")
    (paid,) = client.receive("payments")
    reader = EventBridgeClient(queued.url, tokens("reader", "read", "payloads", "operate", "publish:*"))
    with reader as other, pytest.raises(ApiError) as no_scope:
        other.receive("shipping")
    with EventBridgeClient(queued.url, tokens("crm-worker", "consume:*", owners=["crm"])) as other:
        assert other.receive("shipping", wait="0s") == ()
        with pytest.raises(ApiError) as foreign:
            other.receive("payments")
        assert other.acknowledge("shipping", [paid]).expired == (paid.receipt,)
    assert client.acknowledge("payments", [paid]).done == 1

    assert (no_scope.value.status, no_scope.value.code) == (403, "scope_required")
    assert (foreign.value.status, foreign.value.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("verb", "body", "status", "part"),
    [
        ("receive", {"count": 0}, 422, "count"),
        ("receive", {"count": 1_001}, 422, "count"),
        ("receive", {"count": True}, 422, "count"),
        ("receive", {"visibility_timeout": "13h"}, 400, "visibility_timeout must be from 1s to 12h, not 13h"),
        ("receive", {"visibility_timeout": "0s"}, 400, "visibility_timeout must be from 1s to 12h"),
        ("receive", {"wait": "21s"}, 400, "wait must be from 0s to 20s"),
        ("receive", {"wait": "soon"}, 400, "wait: 'soon' is not a duration"),
        ("receive", {"most": 1}, 422, "most"),
        ("acknowledge", {"receipts": []}, 200, '"done":0'),
        ("acknowledge", {"receipts": ["a"] * 1_001}, 422, "receipts"),
        ("acknowledge", {"receipts": ["a\x00"]}, 422, "receipts"),
        ("acknowledge", {}, 422, "receipts"),
        ("extend", {"receipts": ["a"]}, 422, "visibility_timeout"),
        ("release", {"receipts": ["a"], "delay": "-1s"}, 400, "delay"),
        ("release", {"receipts": ["a"], "error": "x" * 501}, 422, "error"),
        ("drop", {}, 404, ""),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    queued: Server, worker: httpx.Client, verb: str, body: dict[str, Any], status: int, part: str
) -> None:
    """Counts, durations and receipts have limits, and a refusal names the value; no receipt is no error."""
    response = worker.post(f"/v1/queues/shipping/{verb}", json=body)

    assert response.status_code == status, response.text
    assert part in response.text


@pytest.fixture(scope="module")
def worker(queued: Server) -> Iterator[httpx.Client]:
    """A client of bare requests that may consume the queue shipping."""
    with queued.client(queued.installation.token("bare", "consume:shipping")) as opened:
        yield opened


def test_unknown_receipts_have_no_effect(worker: httpx.Client) -> None:
    """Each of them is named, once."""
    response = worker.post("/v1/queues/shipping/acknowledge", json={"receipts": ["a", "b", "a"]})

    assert (response.status_code, response.json()) == (200, {"done": 0, "expired": ["a", "b"]})


def test_the_page_of_a_target_shows_its_queue(queued: Server, client: EventBridgeClient) -> None:
    """How many deliveries wait and are in flight, and since when the oldest one waits."""
    queue_some(queued, client, 10, 11, 12)
    got = client.receive("shipping", 1)
    with queued.client() as viewer:
        viewer.post("/page/login", data={"token": queued.installation.token("viewer", "read")})
        page = viewer.get("/page/targets/shipped/pull").text
    client.acknowledge("shipping", got + client.receive("shipping"))

    assert "<h2>Queue shipping</h2>" in page
    assert "the oldest delivery waits since" in page
    assert "they wait for consumers" in page
    numbers = {name: int(number) for name, number in re.findall(r'data-name="([A-Z][\w ]+)">(\d+)</td>', page)}
    assert (numbers["Waiting"], numbers["In flight"], numbers["Blocked"]) == (2, 1, 0)


def test_a_response_has_at_most_4_mib_of_payload(queued: Server, client: EventBridgeClient) -> None:
    """Unless a single delivery has more, so that consumers never have to hold all that waits."""
    client.publish("orders", [order(20 + number, data={"text": "x" * 900_000}) for number in range(6)])
    queued.installation.deliver("orders")
    first = client.receive("shipping")
    second = client.receive("shipping")
    client.acknowledge("shipping", first + second)

    assert (len(first), len(second)) == (4, 2)
