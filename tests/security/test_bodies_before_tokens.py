"""A caller without a token makes the server work: a call is refused before any of its body is read."""

from __future__ import annotations

import json
import socket
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from api.server import Installation, Server

from eventbridge.api.app import create_app

#: Calls that take a body, with one that the framework would parse.
CALLS = (
    "POST /v1/buses/orders/events",
    "POST /v1/rules/check",
    "POST /v1/rules/all-orders/test",
    "POST /v1/rules/all-orders/release",
    "POST /v1/targets/all-orders/archive/send",
    "POST /v1/targets/all-orders/archive/check",
    "POST /v1/redrives",
    "POST /v1/replays",
)
_ANNOUNCED = 8_700_000


def token(server: Server, *scopes: str) -> str:
    """Return a new token with these scopes."""
    return server.installation.token(f"token-{uuid.uuid4()}", *scopes)


def response_to_half_a_call(server: Server, call: str, secret: str) -> bytes:
    """Send the head of a call and one byte of the body that it announces; return what comes within 5 seconds."""
    method, path = call.split()
    parts = urlsplit(server.url)
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {_ANNOUNCED}\r\n"
    head += f"authorization: Bearer {secret}\r\n" if secret else ""
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=5) as client:
        client.sendall(head.encode() + b"\r\n{")
        return client.recv(65536)


@pytest.mark.parametrize("secret", ["", "ebt_wrong", "wrong"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_without_a_right_token_is_refused_unread(server: Server, call: str, secret: str) -> None:
    """The response arrives while the body is still to come."""
    assert response_to_half_a_call(server, call, secret).startswith(b"HTTP/1.1 401 ")


def test_every_call_with_a_body_is_refused_unread(server: Server) -> None:
    """What openapi.json lists with a body, but the webhooks, whose body is what is signed."""
    with server.client(token(server, "read")) as client:
        paths = client.get("/openapi.json").json()["paths"]
    with_body = {
        (method, path) for path, calls in paths.items() for method, call in calls.items() if "requestBody" in call
    }

    for method, path in sorted(with_body - {("post", "/v1/hooks/{name}")}):
        call = f"{method.upper()} {path.replace('{', '').replace('}', '')}"
        assert response_to_half_a_call(server, call, "").startswith(b"HTTP/1.1 401 "), call
    assert len(with_body) > 5


def test_a_large_body_with_a_wrong_token_costs_no_time(server: Server) -> None:
    """8.7 MB of JSON are refused by a server that responds to others meanwhile: it takes less than their parsing."""
    body = json.dumps({"file": "a.yaml", "content": "x" * _ANNOUNCED, "more": [{"n": n} for n in range(1000)]}).encode()
    began = time.monotonic()
    with httpx.Client(base_url=server.url, timeout=30) as client:
        responses = [
            client.post("/v1/rules/check", content=body, headers={"content-type": "application/json"}) for _ in range(3)
        ]

    assert [response.status_code for response in responses] == [401] * 3
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/redoc", "/docs/oauth2-redirect"])
def test_nothing_describes_the_api_without_a_token(server: Server, path: str) -> None:
    """openapi.json is for those with a token, and pages of documentation there are none."""
    with server.client() as client:
        response = client.get(path)
    with server.client(token(server, "publish:orders")) as client:
        known = client.get(path)

    assert response.status_code in (401, 404)
    assert known.status_code == (200 if path == "/openapi.json" else 404)


@pytest.mark.parametrize(
    "path",
    ["/v1/status", "/health", "/nowhere", "/openapi.json", "/metrics", "/v1/rules", "/page", "/v1/hooks/x"],
)
def test_no_response_is_guessed_at_or_kept(server: Server, path: str) -> None:
    """Each response, a refusal too, says that it is what its content type says, and is not to be stored."""
    with server.client(token(server, "read", "metrics")) as client:
        responses = [client.get(path), client.get(path, headers={"authorization": "Bearer ebt_wrong"})]

    for response in responses:
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "no-store" in response.headers["cache-control"]


def test_every_route_that_takes_a_token_asks_for_it_first(server: Server) -> None:
    """A route of the API is of the kind that does, or is one of those that need none."""
    from eventbridge.api.routes import TokenFirst

    with server.installation.opened() as runtime:
        routes = create_app(runtime).routes
    others = {route.path for route in routes if hasattr(route, "path") and not isinstance(route, TokenFirst)}

    # OPTIONS of a bus is the handshake of web hooks, which permits nothing; / redirects to the page; the portal has
    # the sessions of its links
    of_api = {path for path in others if not path.startswith("/page")}
    assert of_api == {"/", "/health", "/portal", "/v1/hooks/{name}", "/v1/buses/{bus}/events"}


def test_a_body_that_ends_early_leaves_no_traceback(tmp_path: Path) -> None:
    """Whatever route it was for, the log stays short: a log that nobody reads would stop the server once it is full."""
    with Server(Installation(tmp_path)) as running:
        secret = token(running, "read", "operate")
        head = (
            f"authorization: Bearer {secret}\r\ncookie: eventbridge_token={secret}\r\nsec-fetch-site: same-origin\r\n"
        )
        for path, kind in (
            ("/v1/redrives", "application/json"),
            ("/v1/rules/all-orders/pause", "application/json"),
            ("/page/login", "application/x-www-form-urlencoded"),
            ("/page/rules/all-orders/operate", "application/x-www-form-urlencoded"),
        ):
            call = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\ncontent-type: {kind}\r\n"
            with socket.create_connection(("127.0.0.1", urlsplit(running.url).port or 0), timeout=5) as client:
                client.sendall(f"{call}{head}\r\nkey=".encode())
                client.shutdown(socket.SHUT_WR)
                client.settimeout(5)
                client.recv(1)
        with running.client() as client_of_health:
            assert client_of_health.get("/health").status_code == 200
        _, log = running.end()

    assert "Traceback" not in log
