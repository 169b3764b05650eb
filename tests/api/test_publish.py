"""`POST /buses/{bus}/events` on a server in a process of its own: what is answered lies on the bus."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from api.server import Installation, Server, order

BATCHED = {"content-type": "application/cloudevents-batch+json"}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
PATH = "/buses/orders/events"


def place(result: dict[str, Any]) -> tuple[int, int]:
    """Return where a result says that its event lies."""
    return result["queue"], result["offset"]


def test_a_batch_lies_where_its_answer_says(server: Server, client: httpx.Client) -> None:
    """Batched mode: one result for each event in their order, and the bodies are on the bus, not a digit changed."""
    texts = [json.dumps(order(number)).replace('"amount": ', '"amount": 1.10e') for number in range(5)]

    answer = client.post(PATH, content=f"[{', '.join(texts)} ]", headers=BATCHED)

    assert answer.status_code == 200
    told = answer.json()
    lying = server.installation.bodies()
    assert (told["published"], told["failed"]) == (5, 0)
    assert [each["id"] for each in told["results"]] == [f"o{number}" for number in range(5)]
    assert [lying[place(each)].decode() for each in told["results"]] == texts
    assert {each["topic"] for each in told["results"]} == {"placed"}


def test_a_structured_event_goes_to_the_topic_that_is_named(server: Server, client: httpx.Client) -> None:
    """Structured mode: the body is the event; `topic` names another topic than the first."""
    text = json.dumps(order(10))

    answer = client.post(PATH, content=text, headers=STRUCTURED, params={"topic": "paid"})

    (result,) = answer.json()["results"]
    assert result["topic"] == "paid"
    assert server.installation.bodies("paid")[place(result)].decode() == text


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
    """Binary mode: headers are attributes, percent-decoded; the body is the data, as its content type says."""
    headers = {
        "ce-specversion": "1.0",
        "ce-id": content_type,
        "ce-source": "/shop",
        "ce-type": "order.placed",
        "ce-subject": "Gr%C3%BC%C3%9Fe",
        "content-type": content_type,
    }

    answer = client.post(PATH, content=body, headers=headers)

    assert answer.status_code == 200, answer.text
    event = json.loads(server.installation.bodies()[place(answer.json()["results"][0])])
    assert event[member] == value
    assert (event["id"], event["subject"], event["datacontenttype"]) == (content_type, "Grüße", content_type)


def test_binary_data_cannot_write_attributes(client: httpx.Client) -> None:
    """A body that ends its JSON value and goes on is not JSON."""
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "content-type": "text/json"}

    answer = client.post(PATH, content=b'1, "source": "/elsewhere"', headers=headers)

    assert answer.status_code == 400
    assert "The call is not what its headers say: data: " in answer.json()["detail"]


def test_what_is_no_event_is_told_one_by_one(server: Server, client: httpx.Client) -> None:
    """The others of the call are published: 207, and each error has its place in the list."""
    before = len(server.installation.bodies())
    events = [order(20), {"id": "21"}, order(22, time="noon"), 7, order(20), order(23)]

    answer = client.post(PATH, json=events, headers=BATCHED)

    assert answer.status_code == 207
    told = answer.json()
    assert (told["published"], told["failed"]) == (2, 4)
    assert [each.get("error", "") for each in told["results"]] == [
        "",
        "$.source: a CloudEvent must have it, and it is missing",
        "$.time: 'noon' is not a time such as '2013-01-01T10:17:00Z' (RFC 3339)",
        "a number, not a JSON object, at line 1, column 1",
        "source '/shop' has the id 'o20' twice, here and in event 1",
        "",
    ]
    assert len(server.installation.bodies()) == before + 2


def test_a_call_without_any_event_is_400(client: httpx.Client) -> None:
    """Whoever looks at the status only sees that nothing was published."""
    answer = client.post(PATH, content="{}", headers=STRUCTURED)

    assert answer.status_code == 400
    assert answer.json()["results"] == [{"error": "$.id: a CloudEvent must have it, and it is missing"}]


def test_an_event_without_id_gets_one(server: Server, client: httpx.Client) -> None:
    """The answer tells the id that the event has on the bus."""
    event = order()
    del event["id"]

    (result,) = client.post(PATH, json=[event], headers=BATCHED).json()["results"]

    assert json.loads(server.installation.bodies()[place(result)])["id"] == result["id"]


def test_events_of_one_key_keep_their_order(server: Server, client: httpx.Client) -> None:
    """What has one subject lies in one queue, in the order of the call."""
    events = [order(number, id=f"k{number}", subject="customer-7") for number in range(20)]

    results = client.post(PATH, json=events, headers=BATCHED).json()["results"]

    assert len({each["queue"] for each in results}) == 1
    assert [each["offset"] for each in results] == sorted(each["offset"] for each in results)


@pytest.mark.parametrize(
    ("path", "headers", "content", "status", "said"),
    [
        ("/buses/order/events", STRUCTURED, b"{}", 403, "no scope publish:order."),
        (f"{PATH}?topic=paying", STRUCTURED, b"{}", 404, "Did you mean paid?"),
        (PATH, {"content-type": "application/json"}, b"[]", 415, "is not that of a CloudEvents mode"),
        (PATH, {}, b"[]", 415, "No content type. Send application/"),
        (PATH, BATCHED, b"[]", 400, "holds no event"),
        (PATH, BATCHED, b"[1 2]", 400, "is not a JSON array"),
        (PATH, BATCHED, b"[" + b"1," * 1_000 + b"1]", 413, "1,001 events, and a call takes 1,000"),
        (PATH, STRUCTURED, b" " * (8 * 1024 * 1024 + 1), 413, "more than 8,388,608 bytes"),
        ("/nowhere", STRUCTURED, b"{}", 404, "No call has this method and address"),
    ],
)
def test_what_cannot_be_published_at_all_says_why(
    path: str, headers: dict[str, str], content: bytes, status: int, said: str, client: httpx.Client
) -> None:
    """A call that is refused as a whole is a problem with status and remedy."""
    answer = client.post(path, content=content, headers=headers)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert said in answer.json()["detail"]


def test_the_products_own_bus_takes_nothing(server: Server) -> None:
    """Operational events are made by the product alone, whatever a token allows."""
    with server.client(server.installation.token("everything", "publish:*")) as client:
        answer = client.post("/buses/eventbridge/events", json=[order()], headers=BATCHED)
        unknown = client.post("/buses/order/events", json=[order()], headers=BATCHED)

    assert (answer.status_code, unknown.status_code) == (403, 404)
    assert "Did you mean orders?" in unknown.json()["detail"]


def test_sigterm_ends_it_in_good_order(tmp_path: Path) -> None:
    """SIGTERM: exit code 0 and not a word, and a call after it is not accepted."""
    with Server(Installation(tmp_path)) as server:
        assert server.end(signal.SIGTERM) == (0, "")
        with server.client() as client, pytest.raises(httpx.ConnectError):
            client.post(PATH)
