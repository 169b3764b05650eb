"""`Idempotency-Key`: a repeated call gets the first response, and publishes nothing twice."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from api.server import Installation, Server, order

PATH = "/v1/buses/orders/events"
STRUCTURED = {"content-type": "application/cloudevents+json"}


def post(client: httpx.Client, key: str, content: str, path: str = PATH) -> httpx.Response:
    """Publish one event under a key."""
    return client.post(path, content=content, headers={**STRUCTURED, "idempotency-key": key})


def on_bus(made: Installation, kind: str) -> list[str]:
    """Return the ids of the bus's events of a type."""
    events = [json.loads(body) for body in made.bodies().values()]
    return [event["id"] for event in events if event["type"] == kind]


def test_the_same_call_again_gets_the_same_response(server: Server, client: httpx.Client) -> None:
    """One event is on the bus; the second response is marked as stored."""
    content = json.dumps(order(1, type="again"))

    first, second = post(client, "again", content), post(client, "again", content)

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert (first.headers.get("idempotency-replayed"), second.headers.get("idempotency-replayed")) == (None, "true")
    assert on_bus(server.installation, "again") == ["o1"]


def test_the_same_key_for_another_call_is_422(server: Server, client: httpx.Client) -> None:
    """Another body or topic is another call: nothing is published."""
    content = json.dumps(order(1, type="other"))
    assert post(client, "other", content).status_code == 200

    responses = [post(client, "other", content + " "), post(client, "other", content, f"{PATH}?topic=paid")]

    assert [response.status_code for response in responses] == [422, 422]
    assert "was used for another call" in responses[0].json()["detail"]
    assert on_bus(server.installation, "other") == ["o1"]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity"])
def test_the_same_events_compressed_again_are_the_same_call(server: Server, client: httpx.Client, coding: str) -> None:
    """What counts is the decompressed body: other bytes of gzip, another coding, or none, get the first response."""
    kind, event = f"packed.{coding}", order(1, type=f"packed.{coding}")
    content = json.dumps(event).encode()
    packed = {
        "gzip": gzip.compress(content, 1, mtime=1),
        "deflate": zlib.compress(content),
        "identity": content,
    }[coding]
    other = gzip.compress(json.dumps({**event, "id": "o2"}).encode())

    def call(body: bytes, name: str) -> httpx.Response:
        return client.post(
            PATH, content=body, headers={**STRUCTURED, "idempotency-key": kind, "content-encoding": name}
        )

    first, again = call(gzip.compress(content, 9, mtime=0), "gzip"), call(packed, coding)
    refused = call(other, "gzip")

    assert (first.status_code, again.status_code, refused.status_code) == (200, 200, 422)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert on_bus(server.installation, kind) == ["o1"]


def test_two_tokens_may_use_the_same_key(server: Server, client: httpx.Client) -> None:
    """The calls of one token do not affect those of another."""
    assert post(client, "mine", json.dumps(order(1, type="mine"))).status_code == 200
    with server.client(server.installation.token("neighbour", "publish:orders")) as other:
        assert post(other, "mine", json.dumps(order(2, type="mine"))).status_code == 200

    assert sorted(on_bus(server.installation, "mine")) == ["o1", "o2"]


def test_a_refusal_is_not_stored(server: Server, client: httpx.Client) -> None:
    """A refused call may be corrected and sent with the same key."""
    headers = {"content-type": "text/plain", "idempotency-key": "fixed"}
    assert client.post(PATH, content=b"{}", headers=headers).status_code == 415

    assert post(client, "fixed", json.dumps(order(1, type="fixed"))).status_code == 200


def test_a_response_without_published_events_is_not_stored(server: Server, client: httpx.Client) -> None:
    """An invalid event is refused each time, and the corrected event is published with the same key."""
    event = order(1, type="corrected")
    invalid = json.dumps({"x": 1})
    incomplete = json.dumps({**event, "type": ""})

    refused = [post(client, "corrected", content) for content in (invalid, invalid, incomplete, incomplete)]
    published = post(client, "corrected", json.dumps(event))

    assert [each.status_code for each in refused] == [400] * 4
    assert [each.headers.get("idempotency-replayed") for each in refused] == [None] * 4
    assert published.status_code == 200
    assert on_bus(server.installation, "corrected") == ["o1"]


def test_simultaneous_calls_publish_once(server: Server, client: httpx.Client) -> None:
    """Of simultaneous calls with one key, one publishes; the others are refused, or get its response."""
    content = json.dumps(order(1, type="together"))
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda _: post(client, "together", content), range(32)))

    assert {response.status_code for response in responses} <= {200, 409}
    assert all(response.headers["retry-after"] == "1" for response in responses if response.status_code == 409)
    assert on_bus(server.installation, "together") == ["o1"]


def test_a_lost_response_does_not_lead_to_another_event(server: Server, client: httpx.Client) -> None:
    """After a server died before it stored the response, the repeated call publishes under the same generated id."""
    event = order(type="lost")
    del event["id"]
    first = post(client, "lost", json.dumps(event))
    with sqlite3.connect(server.installation.folder / "home" / "ledger.sqlite") as ledger:
        ledger.execute("DELETE FROM kept_response")

    second = post(client, "lost", json.dumps(event))

    assert first.json()["results"][0]["id"] == second.json()["results"][0]["id"]
    assert len(set(on_bus(server.installation, "lost"))) == 1


def test_another_event_with_an_expired_key_has_another_id(server: Server, client: httpx.Client) -> None:
    """Two events that used one key after the other are different events."""
    first, second = order(1, type="expired"), order(2, type="expired")
    del first["id"], second["id"]
    assert post(client, "expired", json.dumps(first)).status_code == 200
    with sqlite3.connect(server.installation.folder / "home" / "ledger.sqlite") as ledger:
        ledger.execute("DELETE FROM kept_response")

    assert post(client, "expired", json.dumps(second)).status_code == 200

    assert len(set(on_bus(server.installation, "expired"))) == 2


def test_a_key_has_a_length(client: httpx.Client) -> None:
    """An empty key, or one of more than 255 characters, is an error."""
    assert [post(client, key, "{}").status_code for key in ("", "k" * 256)] == [400, 400]
