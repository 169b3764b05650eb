"""429 while a bus takes no events, and the health of the server."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
from api.server import Installation, Server, order

from eventbridge.ledger import Ledger

PATH = "/v1/buses/orders/events"
BATCHED = {"content-type": "application/cloudevents-batch+json"}


def post(client: httpx.Client, bus: str = "orders") -> httpx.Response:
    """Publish one event."""
    return client.post(f"/v1/buses/{bus}/events", json=[order()], headers=BATCHED)


def until(client: httpx.Client, status: int) -> httpx.Response:
    """Publish until the status comes; the pressure of a bus is cached for one second, rule files for two."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        response = post(client)
        if response.status_code == status:
            return response
    raise AssertionError(f"{status} never came")


def test_a_full_disk_is_429(tmp_path: Path) -> None:
    """Below the watermark no bus takes events, and the caller learns when to try again."""
    made = Installation(tmp_path, EVENTBRIDGE_DISK_MIN_FREE_SIZE="1000000GiB")
    with Server(made) as server, server.client(made.token("shop", "publish:*")) as client:
        response = post(client)

    assert (response.status_code, response.headers["retry-after"]) == (429, "60")
    assert "its disk has" in response.json()["detail"]
    assert made.bodies() == {}


def test_a_store_at_its_quota_is_429(tmp_path: Path) -> None:
    """Ingestion is stopped then, so no events are accepted."""
    made = Installation(tmp_path, EVENTBRIDGE_STORE_MAX_SIZE="10")
    with Server(made) as server, server.client(made.token("shop", "publish:*")) as client:
        before = post(client)
        with closing(Ledger.open(f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite'}")) as ledger:
            ledger.store_sizes.record_measured(10, ledger.now())
        response = until(client, 429)

    assert (before.status_code, response.headers["retry-after"]) == (200, "60")
    assert "the store holds 10 bytes, its quota is 10" in response.json()["detail"]


def test_a_backlog_beyond_max_backlog_is_429_until_it_is_raised(tmp_path: Path) -> None:
    """Nothing is delivered here, so the backlog grows; other buses take events."""
    made = Installation(tmp_path, more=", max_backlog: 10")
    with Server(made) as server, server.client(made.token("shop", "publish:*")) as client:
        response = until(client, 429)
        before = len(made.bodies())
        other = post(client, "invoices")
        refused = post(client)
        between = len(made.bodies())
        made.write_rules(", max_backlog: 1000000")
        until(client, 200)

    assert response.headers["retry-after"] == "10"
    assert "more than its max_backlog of 10" in response.json()["detail"]
    assert (other.status_code, refused.status_code) == (200, 429)
    assert before == between > 10


def test_an_owner_publishes_within_its_quota(tmp_path: Path) -> None:
    """More is refused until the quota has refilled; buses of others take events."""
    made = Installation(tmp_path, more=", owner: shop")
    (tmp_path / "rules" / "owners.yaml").write_text("owners: {shop: {published: 60/m}}\n")
    with Server(made) as server, server.client(made.token("shop", "publish:*")) as client:
        began = time.monotonic()
        first = client.post(PATH, json=[order(number) for number in range(20)], headers=BATCHED)
        response, other = post(client), post(client, "invoices")
        took = time.monotonic() - began

    assert (first.status_code, first.json()["published"]) == (200, 20)
    assert (response.status_code, other.status_code) == (429, 200)
    assert "'shop' has used up its quota of 1 events a second" in response.json()["detail"]
    assert 15 - took <= int(response.headers["retry-after"]) <= 20


def test_health_needs_no_token(server: Server) -> None:
    """The server is healthy."""
    with server.client() as client:
        response = client.get("/health")

    assert (response.status_code, response.json()) == (200, {"status": "ok", "ledger": "ok", "rules": "ok"})


def test_health_is_503_if_rules_were_never_valid(tmp_path: Path) -> None:
    """The first rule files have an error: no bus is known, and nothing can be published."""
    made = Installation(tmp_path)
    token, reader = made.token("shop", "publish:*"), made.token("reader", "publish:*", "read")
    (tmp_path / "rules" / "orders.yaml").write_text("rules: [")
    with Server(made) as server, server.client(token) as client:
        health, publish = client.get("/health"), post(client)
        hook = client.post("/v1/hooks/code", content=b"{}", headers={"authorization": ""})
        with server.client(reader) as other:
            read = post(other)
        _, said = server.end()

    assert (health.status_code, health.json()["rules"]) == (503, "failing")
    assert (publish.status_code, publish.headers["retry-after"]) == (503, "5")
    assert ("orders.yaml" in publish.text, "eventbridge rules check" in publish.json()["detail"]) == (False, True)
    assert (read.status_code, "orders.yaml" in read.json()["detail"]) == (503, True)
    assert (hook.status_code, "orders.yaml" in hook.text) == (503, False)
    assert "POST /v1/hooks/code: " in said
    assert "orders.yaml" in said


def test_errors_of_the_ledger_are_hidden_without_a_token(tmp_path: Path) -> None:
    """Only the server's log has the path of the ledger."""
    made = Installation(tmp_path)
    with Server(made) as server, server.client("ebt_guessed") as client:
        with sqlite3.connect(tmp_path / "home" / "ledger.sqlite") as ledger:
            ledger.execute("DROP TABLE api_token")
        response = post(client)
        _, said = server.end()

    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert "its log has the reason" in response.json()["detail"]
    assert "ledger" not in response.text
    assert "POST /v1/buses/orders/events: " in said
