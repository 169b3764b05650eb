"""Hostile input is refused with an explanation: no value in a URL, no body and no cursor causes a 5xx."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from api.pages import EXAMPLES, pages_of, routes
from api.server import Server
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from eventbridge.api import middleware
from eventbridge.api.app import PAGE_ROUTERS
from eventbridge.api.middleware import BodyLimit

VALUES = ["a\0b", "9" * 30, "-1", "9999-12-31T23:59:59.999999Z", "99999999d", "'\"<{{7*7}}>%", "\u0661", "x" * 5_000]
CURSORS = [["1"], [-1, "b"], [10**17, "b"], [10**30, "b"], [1, "b\0"], [1, "b", "k", 10**30], ["1", "\0"], [], {}, 1]
ROUTES = [route for router in PAGE_ROUTERS for route in router.routes if isinstance(route, APIRoute)]


@pytest.fixture(scope="module")
def everything(delivered: Server) -> Iterator[httpx.Client]:
    """A client whose token may do everything, logged in to the page."""
    token = delivered.installation.token("attacker", "read", "payloads", "operate", "publish:*")
    with delivered.client(token) as client:
        client.cookies.set("eventbridge_token", token)
        yield client


def addresses(delivered: Server) -> Iterator[str]:
    """Yield each page with each value in each of its parameters, in path and query."""
    pages = pages_of(delivered)
    for route in ROUTES:
        name = route.path.removeprefix("/page")
        if name not in pages:
            continue
        flat = get_flat_dependant(route.dependant)
        path, _, query = pages[name].partition("?")
        for parameter in flat.query_params:
            for value in VALUES:
                given = dict(part.split("=") for part in query.split("&") if part) | {parameter.alias: value}
                yield f"/page{path}?{urlencode(given)}"
        for at in [number for number, part in enumerate(EXAMPLES[name].split("/")) if part != name.split("/")[number]]:
            for value in VALUES:
                parts = path.split("/")
                parts[at] = quote(value, safe="")
                yield f"/page{'/'.join(parts)}?{query}"


def test_no_value_in_a_url_causes_a_server_error(delivered: Server, everything: httpx.Client) -> None:
    """Each is refused with an explanation, or finds nothing."""
    asked = list(addresses(delivered))

    def patient(path: str) -> httpx.Response:
        """Return the response; a call for which the server has no room now is sent again."""
        for _ in range(20):
            response = everything.get(path)
            if "retry-after" not in response.headers:
                break
        return response

    with ThreadPoolExecutor(4) as threads:
        responses = list(threads.map(patient, asked))

    assert len(asked) > 400
    assert {
        f"{response.status_code} {path[:200]}"
        for path, response in zip(asked, responses, strict=True)
        if response.is_server_error
    } == set()


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/batches", "/v1/events", "/v1/dead-letters", "/v1/replays", "/v1/redrives", "/v1/schemas", "/v1/actions"),
        *("/v1/rules", "/v1/targets", "/v1/rule-changes", "/v1/pools", "/v1/quality", "/v1/stats"),
    ],
)
def test_no_cursor_causes_a_server_error(path: str, everything: httpx.Client) -> None:
    """Numbers, texts and shapes that no response ever had."""
    cursors = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in CURSORS]
    pages = [f"/page{path}"] if path in routes("GET") else []
    responses = [everything.get(each, params={"cursor": cursor}) for each in [path, *pages] for cursor in cursors]

    assert {response.status_code for response in responses} <= {200, 400, 422}


@pytest.mark.parametrize(
    "body",
    [
        b'{"rule": "refused", "rate": NaN}',
        b'{"rule": "refused", "rate": 1e999}',
        '{"rule": "refused"}'.encode("utf-16"),
        b'{"rule": "refused", "error": "\\ud800\\u0000"}',
        b"[" * 100_000,
        b'{"rule": ' + b"[" * 500 + b"]" * 500 + b"}",
        b"[]",
        b"null",
        b"\xff",
    ],
    ids=lambda body: str(body[:30]),
)
def test_no_body_causes_a_server_error(body: bytes, everything: httpx.Client) -> None:
    """A body that only some JSON parsers accept is refused, or treated as text."""
    headers = {"content-type": "application/json"}
    paths = [
        "/v1/redrives",
        "/v1/replays",
        "/v1/rules/check",
        "/v1/rules/refused/test",
        "/v1/targets/refused/crm/check",
    ]
    responses = [everything.post(path, content=body, headers=headers) for path in paths]

    assert {response.status_code for response in responses} <= {200, 202, 400, 404, 422}, [
        response.text for response in responses
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"rule": "refused", "dry_run": true, "dry_run": false}', "the member 'dry_run' occurs twice"),
        (b'{"rule": "refused", "error": {"a": 1, "\\u0061": 2}}', "the member 'a' occurs twice"),
        (b'{"rule": ' + b"[" * 100_000, "recursion"),
        (b'{"rate": ' + b"9" * 5_000 + b"}", "4300 digits"),
        (b'{"rule": ', "Expecting value"),
        (b"\xff", "utf-8"),
    ],
    ids=["twice", "escaped", "deep", "long", "ends", "bytes"],
)
def test_a_body_that_cannot_be_read_is_refused_with_the_reason(
    body: bytes, reason: str, everything: httpx.Client
) -> None:
    """Readers differ in which of two members counts, so neither does."""
    response = everything.post("/v1/redrives", content=body, headers={"content-type": "application/json"})

    assert (response.status_code, response.json()["code"]) == (400, "invalid_body")
    assert reason in response.json()["detail"]


def test_an_infinite_rate_is_refused(everything: httpx.Client) -> None:
    """JSON has no infinity, but a number that is too large for a float becomes one."""
    headers = {"content-type": "application/json"}
    for path, body in (("redrives", b'{"rule": "refused"'), ("replays", b'{"bus": "orders", "from": "1h"')):
        response = everything.post(f"/v1/{path}", content=body + b', "rate": 1e400, "dry_run": true}', headers=headers)
        assert (response.status_code, response.json()["errors"][0]["location"]) == (422, "body.rate"), response.text


@pytest.mark.parametrize("time", ["2026-11-22T08:00:00\0", "2026-11-22\x0008:00:00", "2026-11-22\u202e08:00:00"])
def test_a_time_with_an_invisible_character_is_refused(time: str, everything: httpx.Client) -> None:
    """Python reads past it."""
    response = everything.post("/v1/redrives", json={"rule": "refused", "from": time, "dry_run": True})

    assert response.status_code == 400
    assert "is not a time" in response.json()["detail"]


def test_a_compressed_body_of_a_call_is_refused(everything: httpx.Client) -> None:
    """Only calls that publish decompress."""
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    response = everything.post("/v1/redrives", content=gzip.compress(b"{}"), headers=headers)

    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


def test_simultaneous_calls_with_one_key_record_one_redrive(everything: httpx.Client) -> None:
    """A call with the key and another body does nothing, also after the first response."""
    call = {"rule": "refused", "again": True}
    key = {"Idempotency-Key": "many"}

    def begin(number: int) -> httpx.Response:
        return everything.post("/v1/redrives", json=call | ({"rate": 1.0} if number % 2 else {}), headers=key)

    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(begin, range(16)))
    begun = {response.json()["redrive_id"] for response in responses if response.status_code == 202}
    for each in begun:
        everything.post(f"/v1/redrives/{each}/cancel")

    assert {response.status_code for response in responses} <= {202, 409, 422}
    assert len(begun) == 1


@pytest.mark.parametrize(("part", "parts", "status"), [(1 << 20, 20, 413), (1, 1, 408)], ids=["large", "slow"])
def test_a_body_is_limited_before_authentication(
    part: int, parts: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framework reads a body before it checks the token: at most 9 MiB, for at most 40 seconds."""
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)
    taken = 0

    async def reads_all(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal taken
        while (message := await receive()).get("more_body"):
            taken += len(message["body"])

    async def call() -> None:
        waiting: asyncio.Queue[Message] = asyncio.Queue()
        for _ in range(parts):
            waiting.put_nowait({"type": "http.request", "body": b"x" * part, "more_body": True})

        async def send(message: Message) -> None:
            raise AssertionError(message)

        await BodyLimit(reads_all)({"type": "http", "path": "/v1/buses/orders/events"}, waiting.get, send)

    with pytest.raises(HTTPException) as raised:
        asyncio.run(call())
    assert raised.value.status_code == status
    assert taken <= 9 << 20


def test_calls_without_permission_are_refused_whatever_the_body(delivered: Server) -> None:
    """No call changes anything without a token, with a revoked token, or without the scope."""
    revoked = delivered.installation.token("leaver", "operate", "read")
    delivered.installation.run("tokens", "revoke", "leaver")
    with delivered.client(delivered.installation.token("eyes-only", "read")) as eyes:
        described: dict[str, Any] = eyes.get("/openapi.json").json()["paths"]
        before = eyes.get("/v1/actions").json()
        names = dict.fromkeys(("rule", "name", "bus", "queue"), "refused") | {
            "target": "crm",
            "redrive": "0",
            "replay": "0",
            "word": "cancel",
        }
        changing = [path.format_map(names) for path, calls in described.items() if "post" in calls]
        reader = {"/v1/rules/refused/test", "/v1/rules/check"}
        refused = {
            path: eyes.post(path, json={}).status_code
            for path in changing
            if path not in reader and "hooks" not in path
        }
        anonymous = []
        for secret in ("", revoked):
            with delivered.client(secret) as client:
                anonymous += [client.post(path, json={}) for path in refused]

        assert {path: status for path, status in refused.items() if status not in (403, 422)} == {}
        assert {response.status_code for response in anonymous} <= {401, 422}
        assert eyes.get("/v1/actions").json() == before
