"""A caller with a token sends a body of a hundred thousand members: other calls do not wait until it is refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from api.pages import OWN
from api.server import Server, order
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from eventbridge.api.app import create_app
from eventbridge.api.operations import RedriveCall
from eventbridge.api.routes import MAX_CALL_BYTES, JsonCall

#: Calls with a body that a model reads.
CALLS = (
    "/v1/rules/all-orders/priority",
    "/v1/targets/all-orders/archive/rate",
    "/v1/redrives",
    "/v1/replays",
    "/v1/rules/check",
    "/v1/rules/all-orders/test",
    "/v1/rules/all-orders/release",
    "/v1/targets/all-orders/archive/send",
    *(f"/v1/queues/desk/{word}" for word in ("receive", "extend", "acknowledge", "release")),
)


def method_of(path: str) -> str:
    """Return the method of a call."""
    return "PUT" if path.endswith(("/priority", "/rate")) else "POST"


MANY = {f"k{number}": 1 for number in range(200_000)}


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """A client that may do everything, logged in to the page too."""
    token = server.installation.token("all", "read", "operate", "payloads", "consume:*")
    with server.client(token) as opened:
        opened.headers["connection"] = "close"  # the server may close one whose body it refused unread
        opened.post("/page/login", data={"token": token}, headers=OWN)
        yield opened


def models_of(server: Server) -> dict[str, type[BaseModel]]:
    """Return the model of the body of each route that has one, by path."""
    with server.installation.opened() as runtime:
        routes = [each for each in create_app(runtime).routes if isinstance(each, APIRoute)]
    found: dict[str, type[BaseModel]] = {}
    for route in routes:
        for each in route.dependant.body_params:
            assert isinstance(route, JsonCall), route.path
            model: Any = each.field_info.annotation
            found[route.path] = model
    return found


def test_every_call_with_a_body_is_tried_here(server: Server) -> None:
    """`CALLS` names the calls of the application, and each model refuses members that it does not have."""
    models = models_of(server)
    known = {"all-orders": "{rule}", "archive": "{target}", "desk": "{queue}"}
    paths = {"/".join(known.get(part, part) for part in each.split("/")) for each in CALLS}

    assert set(models) == paths
    assert {path for path, each in models.items() if each.model_config.get("extra") != "forbid"} == set()
    # a model in a model would be validated member by member, before anybody counts them
    assert not any("$defs" in each.model_json_schema() for each in models.values())


@pytest.mark.parametrize("path", CALLS)
def test_unknown_members_are_refused_in_a_few_words(path: str, client: httpx.Client) -> None:
    """However many a body has: the response names some of them, and those that there are."""
    response = client.request(method_of(path), path, json=MANY)

    assert response.status_code == 422
    assert "k0" in response.text
    assert len(response.text) < 2_000


def test_a_body_is_no_larger_than_an_event_and_a_rule_file(server: Server, client: httpx.Client) -> None:
    """Only calls that publish take more."""
    content = b'{"action": "' + b"x" * (MAX_CALL_BYTES + 1_048_576) + b'"}'
    responses = [
        client.request(method_of(path), path, content=content, headers={"content-type": "application/json"})
        for path in CALLS
    ]

    assert {each.status_code for each in responses} == {413}


def test_a_form_has_a_few_fields(client: httpx.Client) -> None:
    """A form of a hundred thousand fields is refused before they are taken apart."""
    fields = b"&".join(b"k%d=1" % number for number in range(100_000))
    headers = OWN | {"content-type": "application/x-www-form-urlencoded"}
    response = client.post("/page/rules/all-orders/test", content=fields, headers=headers)

    assert (response.status_code, "fields" in response.text) == (413, True)


def test_other_calls_get_a_response_meanwhile(server: Server, client: httpx.Client) -> None:
    """The longest that another call waits is a small part of the time that it takes to refuse each member by itself."""
    before = time.monotonic()
    with pytest.raises(ValidationError) as caught:
        RedriveCall.model_validate(MANY)
    caught.value.errors()
    one_by_one = time.monotonic() - before
    content = json.dumps(MANY)
    waits: list[float] = []
    longest: list[float] = []
    over = threading.Event()

    def look() -> None:
        with httpx.Client(base_url=server.url) as other:
            while not over.is_set():
                began = time.monotonic()
                other.get("/health")
                waits.append(time.monotonic() - began)

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(3):
        seen = len(waits)
        client.post("/v1/redrives", content=content, headers={"content-type": "application/json"})
        while len(waits) < seen + 2:  # one that began before the call was refused has ended
            time.sleep(0.01)
        longest.append(max(waits[seen:]))
    over.set()
    thread.join()

    # the machine may be busy during some of the calls, while validation would hold up every one
    assert min(longest) < one_by_one / 3, (longest, one_by_one)


def test_an_event_of_many_members_is_an_event(client: httpx.Client) -> None:
    """What may be large is taken: an event has any members, and the response is that of any event."""
    event = order(1, data={f"k{number}": 1 for number in range(50_000)})
    response = client.post("/v1/rules/all-orders/test", json={"event": event})

    assert (response.status_code, response.json()["matched"]) == (200, True)
