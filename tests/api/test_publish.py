"""`POST /v1/buses/{bus}/events` on a server in a process of its own: events with a position are on the bus."""

from __future__ import annotations

import gzip
import json
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from api.server import Installation, Server, order

BATCHED = {"content-type": "application/cloudevents-batch+json"}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
PATH = "/v1/buses/orders/events"


def position_of(result: dict[str, Any]) -> tuple[int, int]:
    """Return the position in a result."""
    return result["partition"], result["offset"]


def test_the_events_of_a_batch_are_at_their_positions(server: Server, client: httpx.Client) -> None:
    """Batched mode: one result for each event, in order; the bodies on the bus are unchanged."""
    texts = [json.dumps(order(number)).replace('"amount": ', '"amount": 1.10e') for number in range(5)]

    response = client.post(PATH, content=f"[{', '.join(texts)} ]", headers=BATCHED)

    assert response.status_code == 200
    body = response.json()
    lying = server.installation.bodies()
    assert (body["published"], body["failed"]) == (5, 0)
    assert [each["id"] for each in body["results"]] == [f"o{number}" for number in range(5)]
    assert [lying[position_of(each)].decode() for each in body["results"]] == texts
    assert {each["topic"] for each in body["results"]} == {"placed"}


def test_a_structured_event_goes_to_the_named_topic(server: Server, client: httpx.Client) -> None:
    """Structured mode: the body is the event; `topic` names a topic other than the first."""
    text = json.dumps(order(10))

    response = client.post(PATH, content=text, headers=STRUCTURED, params={"topic": "paid"})

    (result,) = response.json()["results"]
    assert result["topic"] == "paid"
    assert server.installation.bodies("paid")[position_of(result)].decode() == text


@pytest.mark.parametrize(
    ("content_type", "body", "member", "value"),
    [
        ("application/json", b'{"amount": 1.10}', "data", {"amount": 1.1}),
        ("application/vnd.shop+json", b"[1]", "data", [1]),
        ("text/plain; charset=utf-8", "grüß".encode(), "data", "grüß"),
        ("application/octet-stream", b"\x00\xff", "data_base64", "AP8="),
    ],
)
def test_a_binary_event_becomes_a_structured_one(
    content_type: str, body: bytes, member: str, value: Any, server: Server, client: httpx.Client
) -> None:
    """Binary mode: headers are attributes, percent-decoded; the body is the data, by its content type."""
    headers = {
        "ce-specversion": "1.0",
        "ce-id": content_type,
        "ce-source": "/shop",
        "ce-type": "order.placed",
        "ce-subject": "Gr%C3%BC%C3%9Fe",
        "content-type": content_type,
    }

    response = client.post(PATH, content=body, headers=headers)

    assert response.status_code == 200, response.text
    event = json.loads(server.installation.bodies()[position_of(response.json()["results"][0])])
    assert event[member] == value
    assert (event["id"], event["subject"], event["datacontenttype"]) == (content_type, "Grüße", content_type)


def test_binary_data_cannot_write_attributes(client: httpx.Client) -> None:
    """A body with data after its JSON value is not JSON."""
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "content-type": "text/json"}

    response = client.post(PATH, content=b'1, "source": "/elsewhere"', headers=headers)

    assert response.status_code == 400
    assert "The headers and the body do not form an event: data: " in response.json()["detail"]


def test_invalid_events_are_reported_one_by_one(server: Server, client: httpx.Client) -> None:
    """The other events are published: 207, and each error has its position in the list."""
    before = len(server.installation.bodies())
    events = [order(20), {"id": "21"}, order(22, time="noon"), 7, order(20), order(23)]

    response = client.post(PATH, json=events, headers=BATCHED)

    assert response.status_code == 207
    body = response.json()
    assert (body["published"], body["failed"]) == (2, 4)
    assert [each.get("error", "") for each in body["results"]] == [
        "",
        "$.source: a CloudEvent must have it, but it is missing",
        "$.time: 'noon' is not a time such as '2013-01-01T10:17:00Z' (RFC 3339)",
        "a number, not a JSON object, at line 1, column 1",
        "source '/shop' has the id 'o20' twice, here and in event 1",
        "",
    ]
    assert len(server.installation.bodies()) == before + 2


def test_a_call_without_any_event_is_400(client: httpx.Client) -> None:
    """The status alone shows that nothing was published."""
    response = client.post(PATH, content="{}", headers=STRUCTURED)

    assert response.status_code == 400
    assert response.json()["results"] == [{"error": "$.id: a CloudEvent must have it, but it is missing"}]


def test_an_event_without_id_gets_one(server: Server, client: httpx.Client) -> None:
    """The response has the event's id on the bus."""
    event = order()
    del event["id"]

    (result,) = client.post(PATH, json=[event], headers=BATCHED).json()["results"]

    assert json.loads(server.installation.bodies()[position_of(result)])["id"] == result["id"]


def test_events_with_one_key_keep_their_order(server: Server, client: httpx.Client) -> None:
    """Events with one subject are in one partition, in the order of the call."""
    events = [order(number, id=f"k{number}", subject="customer-7") for number in range(20)]

    results = client.post(PATH, json=events, headers=BATCHED).json()["results"]

    assert len({each["partition"] for each in results}) == 1
    assert [each["offset"] for each in results] == sorted(each["offset"] for each in results)


@pytest.mark.parametrize(
    ("path", "headers", "content", "status", "said"),
    [
        ("/v1/buses/order/events", STRUCTURED, b"{}", 403, "no scope publish:order."),
        (f"{PATH}?topic=paying", STRUCTURED, b"{}", 404, "Did you mean paid?"),
        (PATH, {"content-type": "application/json"}, b"[]", 415, "belongs to no CloudEvents mode"),
        (PATH, {}, b"[]", 415, "No content type. Send application/"),
        (PATH, BATCHED, b"[]", 400, "has no events"),
        (PATH, BATCHED, b"[1 2]", 400, "is not a JSON array"),
        (PATH, BATCHED, b"[" + b"1," * 1_000 + b"1]", 413, "more than 1,000 events"),
        (PATH, STRUCTURED, b" " * (8 * 1024 * 1024 + 1), 413, "more than 8,388,608 bytes"),
        ("/nowhere", STRUCTURED, b"{}", 404, "No call has this method and path"),
    ],
)
def test_a_refused_call_says_why(
    path: str, headers: dict[str, str], content: bytes, status: int, said: str, client: httpx.Client
) -> None:
    """A call that is refused as a whole gets a problem with status and remedy."""
    response = client.post(path, content=content, headers=headers)

    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status
    assert said in response.json()["detail"]


def text_of_packed(mode: str, event: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of a call in one of the modes."""
    if mode == "binary":
        attributes = {f"ce-{name}": value for name, value in event.items() if name != "data"}
        return json.dumps(event["data"]).encode(), {**attributes, "content-type": "application/json"}
    if mode == "batched":
        return json.dumps([event]).encode(), BATCHED
    return json.dumps(event).encode(), STRUCTURED


@pytest.mark.parametrize("mode", ["binary", "structured", "batched"])
@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_body_is_decompressed(
    mode: str, coding: str, pack: Callable[[bytes], bytes], server: Server, client: httpx.Client
) -> None:
    """The event on the bus is the same as an uncompressed one; a repeated call with the key is recognized."""
    body, headers = text_of_packed(mode, order(40, id=f"{mode}-{coding}"))
    headers = {**headers, "content-encoding": coding, "idempotency-key": f"{mode}-{coding}"}

    packed = pack(body)  # once: the header of gzip has the time

    response, again = (client.post(PATH, content=packed, headers=headers) for _ in range(2))
    other = client.post(PATH, content=packed, headers={**headers, "content-encoding": "identity"})

    assert response.status_code == 200, response.text
    event = json.loads(server.installation.bodies()[position_of(response.json()["results"][0])])
    assert (event["id"], event["data"]) == (f"{mode}-{coding}", {"amount": 40})
    assert (again.json(), other.status_code) == (response.json(), 422)


def test_an_unsupported_coding_lists_the_supported_ones(client: httpx.Client) -> None:
    """415 with Accept-Encoding."""
    response = client.post(PATH, content=b"x", headers={**STRUCTURED, "content-encoding": "br"})

    assert (response.status_code, response.headers["accept-encoding"]) == (415, "gzip, deflate")
    assert "The content coding 'br' is not supported" in response.json()["detail"]


def test_a_decompression_bomb_is_too_large(client: httpx.Client) -> None:
    """413, like a body of that size."""
    bomb = gzip.compress(bytes(64 << 20), mtime=0)
    response = client.post(PATH, content=bomb, headers={**STRUCTURED, "content-encoding": "gzip"})

    assert response.status_code == 413
    assert "decompresses to more than 8,388,608 bytes" in response.json()["detail"]


def test_an_event_that_is_too_large_is_413(server: Server, client: httpx.Client) -> None:
    """Alone, the call gets 413; among several events, only its result has it, and the others are published."""
    large = order(50, data="x" * 1_100_000)
    alone = client.post(PATH, json=large, headers=STRUCTURED)
    among = client.post(PATH, json=[large, order(51)], headers=BATCHED)

    assert alone.status_code == 413
    assert "the largest allowed is 1,048,576" in alone.json()["results"][0]["error"]
    assert (among.status_code, among.json()["published"]) == (207, 1)
    assert among.json()["results"][0]["status"] == 413


def test_a_duplicate_attribute_is_refused(client: httpx.Client) -> None:
    """In headers and among the members of an event: targets could disagree about which one is valid."""
    binary = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")]
    headers = [*binary, ("ce-subject", "a"), ("ce-subject", "b")]
    twice = json.dumps(order(60)).replace('"id"', '"id": "other", "id"', 1)

    responses = [client.post(PATH, headers=headers), client.post(PATH, content=twice, headers=STRUCTURED)]

    assert [response.status_code for response in responses] == [400, 400]
    assert "the attribute subject occurs twice" in responses[0].text
    assert "$.id: the event has it twice" in responses[1].text


def test_a_path_has_no_slash_at_its_end(client: httpx.Client) -> None:
    """There is no redirect: behind a proxy it would name http://, and the token would be sent there."""
    response = client.post(f"{PATH}/", json=order(), headers=STRUCTURED)

    assert response.status_code == 404
    assert "location" not in response.headers


@pytest.mark.parametrize("path", ["/health", "/openapi.json", "/page/login"])
def test_head_gets_the_response_of_get_without_a_body(path: str, client: httpx.Client) -> None:
    """Load balancers check the health of a server by HEAD."""
    head, got = client.head(path), client.get(path)

    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.status_code == 200
    assert head.headers["content-length"] == got.headers["content-length"]


def test_the_bus_of_operational_events_takes_no_events(server: Server) -> None:
    """Only EventBridge publishes operational events, whatever a token allows."""
    with server.client(server.installation.token("everything", "publish:*")) as client:
        response = client.post("/v1/buses/eventbridge/events", json=[order()], headers=BATCHED)
        unknown = client.post("/v1/buses/order/events", json=[order()], headers=BATCHED)

    assert (response.status_code, unknown.status_code) == (403, 404)
    assert "Did you mean orders?" in unknown.json()["detail"]


def test_sigterm_shuts_the_server_down_gracefully(tmp_path: Path) -> None:
    """Exit code 0 and no output; later calls are not accepted."""
    with Server(Installation(tmp_path)) as server:
        assert server.end(signal.SIGTERM) == (0, "")
        with server.client() as client, pytest.raises(httpx.ConnectError):
            client.post(PATH)
