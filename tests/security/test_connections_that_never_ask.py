"""Somebody opens more connections than the server takes and lets it wait on each: other callers get their response."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from api.server import Server
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eventbridge.api import connections as limits
from eventbridge.api.connections import HEAD_SECONDS, MAX_CONNECTIONS, MAX_HEAD_BYTES, Connection

#: More than the server takes.
MANY = MAX_CONNECTIONS + 44
#: Enough for a busy machine, and less than the time after which the server closes a connection by itself.
SOON = HEAD_SECONDS / 2

HALF_HEAD = b"GET /health HTTP/1.1\r\nhost: x\r\nx-half: "
#: Each makes the server wait for its sender, in another way.
WAITS = {
    "no head": b"",
    "half a head": HALF_HEAD,
    "half a body": b"POST /v1/hooks/code HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{",
    "half a head after a call": b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n" + HALF_HEAD,
}


def connection(server: Server) -> socket.socket:
    """Return a new connection to a server."""
    parts = urlsplit(server.url)
    return socket.create_connection((str(parts.hostname), parts.port or 0), timeout=2 * HEAD_SECONDS)


@contextmanager
def connections(server: Server, sent: bytes) -> Iterator[list[socket.socket]]:
    """Hold connections open that have sent something."""
    with ExitStack() as opened:
        clients = []
        for _ in range(MANY):
            clients.append(opened.enter_context(connection(server)))
            clients[-1].setblocking(False)
            clients[-1].send(sent)
            clients[-1].settimeout(2 * HEAD_SECONDS)
        yield clients


def seconds_until_closed(client: socket.socket) -> float:
    """Return how long the server keeps a connection open."""
    began = time.monotonic()
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - began


@pytest.mark.parametrize("sent", WAITS.values(), ids=WAITS.keys())
def test_others_get_a_response_while_the_server_waits_on_many_connections(server: Server, sent: bytes) -> None:
    """A new call takes the place of the connection on which the server has waited longest."""
    with connections(server, sent):
        began = time.monotonic()
        with server.client() as client:
            responses = [client.get("/health", headers={"connection": "close"}) for _ in range(5)]
        passed = time.monotonic() - began

    assert [each.status_code for each in responses] == [200] * 5
    assert passed < SOON


@pytest.mark.parametrize(
    "sent", [b"", HALF_HEAD, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n\r\n"], ids=["nothing", "half", "empty lines"]
)
def test_a_connection_without_a_head_is_closed(server: Server, sent: bytes) -> None:
    """Also without other callers, soon after the time that a head may take."""
    with connection(server) as client:
        client.sendall(sent)
        assert seconds_until_closed(client) < HEAD_SECONDS + SOON


def test_a_head_that_never_ends_is_refused(server: Server) -> None:
    """The server holds a part of it only, and says why it closes the connection."""
    with connection(server) as client:
        client.sendall(HALF_HEAD + b"x" * MAX_HEAD_BYTES)
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_body_may_be_larger_than_a_head(server: Server) -> None:
    """The limit of a head counts no byte of a body."""
    with server.client() as client:
        assert client.post("/v1/hooks/code", content=b"x" * 16 * MAX_HEAD_BYTES).status_code == 403


async def _large_or_small(scope: Scope, receive: Receive, send: Send) -> None:
    content = b"x" * (64 << 20 if scope["path"] == "/large" else 1)
    await Response(content)(scope, receive, send)


def test_others_get_a_response_while_many_responses_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new call takes the place of the connection whose caller has not read its response for longest."""
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 3)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    config = uvicorn.Config(
        _large_or_small, http=Connection, ws="none", lifespan="off", limit_concurrency=6, log_level="warning"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    with ExitStack() as opened:
        for _ in range(3):
            client = opened.enter_context(socket.create_connection(address, timeout=20))
            client.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
            assert client.recv(1)  # the response has begun
        response = httpx.get(f"http://127.0.0.1:{address[1]}/small")
        server.should_exit = True
    thread.join()

    assert response.text == "x"
