"""The Python client of the HTTP API, sync and async, on a real server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from api.server import Server, order

from eventbridge.api.error_codes import CODES
from eventbridge.client import ApiError, AsyncEventBridgeClient, EventBridgeClient

OLD = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def secret(delivered: Server) -> str:
    """A token that may do everything but publish."""
    return delivered.installation.token("python", "read", "operate", "payloads")


@pytest.fixture(scope="module")
def opened(delivered: Server, secret: str) -> Iterator[EventBridgeClient]:
    """A client of the server `delivered`."""
    with EventBridgeClient(delivered.url, secret) as client:
        yield client


def test_events_are_published_with_a_result_each(server: Server) -> None:
    """The valid ones have positions, the others errors; a call without a valid event has results too."""
    token = server.installation.token("python-publisher", "publish:*")
    with EventBridgeClient(server.url, token) as client:
        some = client.publish("orders", [order(901), {"specversion": "1.0"}], topic="paid")
        none = client.publish("orders", [{"specversion": "1.0"}])
        first = client.publish("orders", [order()], idempotency_key="python-1")
        again = client.publish("orders", [order()], idempotency_key="python-1")

        with pytest.raises(ApiError) as unknown:
            client.publish("never", [order()])
        with pytest.raises(ValueError, match="JSON compliant"):
            client.publish("orders", [order(data=float("nan"))])

    assert (some.published, some.failed, some.results[0].id, some.results[0].topic) == (1, 1, "o901", "paid")
    assert some.results[1].error is not None
    assert (none.published, none.failed) == (0, 1)
    assert first == again
    assert (unknown.value.status, unknown.value.code) == (404, "not_found")


def test_lists_iterate_over_all_pages(opened: EventBridgeClient) -> None:
    """Typed lists, and any list as documents; a small limit makes several pages of the same items."""
    rules = {each.name: each for each in opened.rules()}
    paged = [each["name"] for each in opened.items("rules", limit=1)]
    ids = [each["event_id"] for each in opened.items("events", since=OLD, type="order.placed", limit=1)]

    assert paged == sorted(rules) == ["all-orders", "refused"]
    assert (rules["refused"].bus, opened.rule("refused")) == ("orders", rules["refused"])
    assert sorted(ids) == ["o0", "o1", "o2"]
    assert {(each.rule, each.target) for each in opened.targets()} == {("all-orders", "archive"), ("refused", "crm")}
    for path in ("batches", "buses", "redrives", "replays", "pools", "quality", "stats", "dead-letter-groups"):
        assert [each for each in opened.items(path) if not isinstance(each, dict)] == []
    for path in ("chunks", "rules/refused/versions", "schemas", "schemas/order.placed"):
        assert len(list(opened.items(path, limit=1))) == len(list(opened.items(path))) > 0
    assert opened.get("status", batches=0)["batches"] == []


def test_dead_letters_are_listed_and_loaded(opened: EventBridgeClient) -> None:
    """Filtered, without and with their events; a name from the list leads to the whole one, with slashes too."""
    (refused,) = opened.dead_letters(rule="refused", since=OLD)
    (whole,) = opened.dead_letters(rule="refused", whole=True)
    (malformed,) = opened.dead_letters(reason="malformed")

    assert (refused.target, refused.event_id, refused.attempts) == ("crm", "o2", None)
    assert opened.dead_letter(refused.name) == whole
    assert whole.attempts[0]["error_class"] == "ConnectionRefused"
    assert ("/" in malformed.name, opened.dead_letter(malformed.name).reason) == (True, "malformed")


def test_rules_and_targets_are_changed_and_changed_back(opened: EventBridgeClient) -> None:
    """By POST, PUT and DELETE; the second identical change changes nothing."""
    paused = [opened.change_rule("all-orders", "pause"), opened.change_rule("all-orders", "pause")]
    resumed = opened.change_rule("all-orders", "resume")
    priorities = [opened.set_priority("all-orders", each) for each in ("high", None, None)]
    rates = [opened.set_rate("all-orders", "archive", each) for each in ("5/s", None)]
    opened.change_target("all-orders", "archive", "pause")
    held = opened.target("all-orders", "archive").hold_reason
    opened.change_target("all-orders", "archive", "resume")

    assert [each.changed for each in [*paused, resumed]] == [True, False, True]
    assert [each.changed for each in [*priorities, *rates]] == [True, True, False, True, True]
    assert (held != "", opened.target("all-orders", "archive").hold_reason) == (True, "")


def test_redrives_and_replays_are_started_once(opened: EventBridgeClient) -> None:
    """Two calls with one key record one; a time may be an aware datetime."""
    redrives = [opened.start_redrive(rule="refused", key="python-redrive") for _ in range(2)]
    replays = [opened.start_replay("orders", OLD, rules=["all-orders"], key="python-replay") for _ in range(2)]
    cancelled = [
        opened.post("redrives", redrives[0].redrive_id, "cancel"),
        opened.post("replays", replays[0].replay_id, "cancel"),
    ]

    assert (redrives[0], redrives[0].state) == (redrives[1], "running")
    assert (replays[0].replay_id, replays[0].bus) == (replays[1].replay_id, "orders")
    assert [each["state"] for each in cancelled] == ["cancelled", "cancelled"]


def test_refused_calls_raise_their_problem(opened: EventBridgeClient, delivered: Server) -> None:
    """With the code, the detail and the wrong values; a server that is none of ours has no code."""
    with pytest.raises(ApiError, match="404 not_found: ") as missing:
        opened.rule("never")
    with pytest.raises(ApiError) as wrong:
        list(opened.items("batches", limit=0))
    with EventBridgeClient(delivered.url, "ebt_wrong") as stranger, pytest.raises(ApiError) as unknown:
        stranger.get("status")
    with EventBridgeClient(f"{delivered.url}/page", "t") as other, pytest.raises(ApiError) as page:
        other.get("status")

    assert (missing.value.title, missing.value.errors) == ("Not Found", ())
    assert missing.value.remedy == CODES["not_found"].remedy
    assert (wrong.value.code, wrong.value.errors[0]["location"]) == ("invalid_request", "query.limit")
    assert (unknown.value.status, unknown.value.code) == (401, "token_invalid")
    assert page.value.status == 404


def test_the_async_client_has_the_same_calls(delivered: Server, secret: str) -> None:
    """Verbs are coroutines and lists are async iterators, of one definition with those of the sync client."""

    async def calls() -> None:
        async with AsyncEventBridgeClient(delivered.url, secret) as client:
            status, rule = await asyncio.gather(client.get("status"), client.rule("refused"))
            assert (status["partitions"] != [], rule.name) == (True, "refused")
            assert [each.name async for each in client.rules()] == ["all-orders", "refused"]
            assert [each["name"] async for each in client.items("rules", limit=1)] == ["all-orders", "refused"]
            assert (await client.set_priority("all-orders", None)).changed is False
            with pytest.raises(ApiError, match="not_found"):
                await client.rule("never")

    asyncio.run(calls())


@contextmanager
def answering(
    answers: Sequence[tuple[int, dict[str, str]]], body: bytes = b'{"published": 0, "failed": 0, "results": []}'
) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Yield the URL of a server with these answers, one after the other, and the calls that it got.

    A status of 0 closes the connection without an answer.
    """
    got: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.do_GET()

        def do_GET(self) -> None:
            status, headers = answers[len(got)]
            got.append((self.command, self.headers.get("idempotency-key")))
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}", got
        finally:
            served.shutdown()
            thread.join()


def test_calls_are_tried_again_with_the_same_key() -> None:
    """After a lost connection and 503 with Retry-After; what another POST gets is not tried again."""
    with (
        answering([(0, {}), (503, {"retry-after": "0"}), (200, {}), (503, {})]) as (url, got),
        EventBridgeClient(url, "t") as client,
    ):
        client.publish("orders", [order()])
        with pytest.raises(ApiError) as refused:
            client.change_rule("orders", "pause")

    assert [each[0] for each in got] == ["POST"] * 4
    assert len({key for _, key in got[:3]}) == 1
    assert (got[0][1] is not None, got[3][1]) == (True, None)
    assert refused.value.status == 503


def test_the_last_refusal_is_raised() -> None:
    """After the retries, or at once if the server asks for a wait beyond half a minute; by the async client too."""

    async def called(url: str) -> None:
        async with AsyncEventBridgeClient(url, "t", retries=1) as client:
            await client.get("status")

    with answering([(429, {}), (429, {}), (429, {"retry-after": "3600"})]) as (url, got):
        with pytest.raises(ApiError, match="429"):
            asyncio.run(called(url))
        with EventBridgeClient(url, "t") as client, pytest.raises(ApiError, match="429"):
            client.get("status")

    assert len(got) == 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chunks", b'{"chunks": [{"id": 1}]}'),
        ("rules/big/versions", b'{"versions": [{"id": 1}]}'),
        ("rules/big/shadows", b'{"shadows": [{"id": 1}]}'),
    ],
)
def test_a_list_without_pages_has_all_items(path: str, body: bytes) -> None:
    """The API returns it whole, without `next`."""
    with answering([(200, {})], body) as (url, _), EventBridgeClient(url, "t") as client:
        assert list(client.items(path)) == [{"id": 1}]


@pytest.mark.parametrize("body", [b'{"login": "yes"}', b'{"rules": 3}', b'{"rules": []}', b"[]", b"<html>"])
def test_a_foreign_answer_is_an_api_error(body: bytes) -> None:
    """It says to check the URL and the version of the server."""
    with (
        answering([(200, {})], body) as (url, _),
        EventBridgeClient(url, "t") as client,
        pytest.raises(ApiError, match="Check URL and version of the server"),
    ):
        list(client.rules())


def test_a_time_without_a_zone_is_refused() -> None:
    """It would be taken for UTC; nothing is sent."""
    naive = OLD.replace(tzinfo=None)
    with answering([]) as (url, got), EventBridgeClient(url, "t") as client:
        with pytest.raises(ValueError, match="since has no time zone"):
            list(client.items("events", since=naive))
        with pytest.raises(ValueError, match="until has no time zone"):
            client.start_redrive(until=naive)

    assert got == []


@pytest.mark.parametrize("token", ["", "secret-4711\n", "secret 4711", "secret-4711\u00e9", "secret-4711\r\nx: y"])
def test_a_token_that_no_header_can_hold_is_refused_unseen(token: str) -> None:
    """The message does not show it."""
    with pytest.raises(ValueError, match="the token must be printable ASCII") as refused:
        EventBridgeClient("http://127.0.0.1:9", token)

    assert "4711" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:9", "ftp://host", "http://user:pw-4711@host", "http://host?x=1", "http://host/#f", "http://", ""),
        *("http://host /", "http://host@other", "file:///etc/passwd"),
    ],
)
def test_a_url_that_is_no_server_is_refused_unseen(url: str) -> None:
    """A login would replace the token, and a query or a fragment would swallow the paths."""
    with pytest.raises(ValueError, match="the URL must be") as refused:
        EventBridgeClient(url, "t")

    assert "4711" not in str(refused.value)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_changes_the_path_is_refused(name: str) -> None:
    """`..` would make another call, perhaps one that changes something; so would a key with a line end."""
    with answering([]) as (url, got), EventBridgeClient(f"{url}/prefix/", "t") as client:
        for call in (client.rule, client.dead_letter, lambda each: client.change_rule(each, "pause")):
            with pytest.raises(ValueError, match="a name in the path"):
                call(name)
        with pytest.raises(ValueError, match="a name in the path"):
            list(client.items(f"rules/{name}"))
        with pytest.raises(ValueError, match="the idempotency key"):
            client.publish("orders", [order()], idempotency_key=f"{name}\nkey")

    assert got == []


@pytest.mark.parametrize("events", [order(), "abc", b"abc"])
def test_one_event_is_not_taken_for_a_list(events: Any) -> None:
    """Its keys or letters would be sent as events."""
    with answering([]) as (url, got), EventBridgeClient(url, "t") as client, pytest.raises(TypeError, match="list"):
        client.publish("orders", events)

    assert got == []


def test_answers_that_the_api_never_gives_are_api_errors() -> None:
    """Members that are null, a failure that seems to have results, a redirect, and no retries at all."""
    null, results = b'{"errors": null, "unreadable": null, "rules": {}}', b'{"published":1,"failed":0,"results":[]}'
    with answering([(400, {}), (200, {})], null) as (url, _), EventBridgeClient(url, "t", retries=-1) as client:
        with pytest.raises(ApiError) as refused:
            client.get("status")
        assert refused.value.errors == ()
        assert list(client.rules()) == []
    with (
        answering([(500, {"content-type": "application/json"})], results) as (url, _),
        EventBridgeClient(url, "t") as client,
        pytest.raises(ApiError, match="500"),
    ):
        client.publish("orders", [order()])
    with (
        answering([(302, {"location": "/login"})], b"") as (url, _),
        EventBridgeClient(url, "t") as client,
        pytest.raises(ApiError, match="Check the URL"),
    ):
        client.get("status")


def test_the_client_imports_nothing_of_the_server() -> None:
    """A program that imports it loads neither FastAPI nor the ledger."""
    code = (
        "import sys, eventbridge.client\n"
        "print([each for each in sys.modules if each.split('.')[0] in {'fastapi', 'pydantic', 'sqlalchemy', 'duckdb'}"
        " or each.startswith('eventbridge.ledger')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
