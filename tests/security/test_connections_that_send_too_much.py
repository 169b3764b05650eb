"""Somebody without a token sends calls, headers or chunks as fast as a connection takes them: others are served."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from api.server import Server

from eventbridge.api.connections import MAX_HEADERS, MAX_PIPELINED

CALL = b"GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n"
#: Less than the time that each of these attacks kept the event loop busy.
SOON = 1.0
MEGABYTE = 1024 * 1024


@contextmanager
def connection(server: Server) -> Iterator[socket.socket]:
    """Hold a connection to a server open."""
    parts = urlsplit(server.url)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=20) as opened:
        yield opened


def memory_of(server: Server) -> int:
    """Return the memory of a server's process, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024


def received(client: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection, and no more than a megabyte."""
    content = b""
    try:
        while len(content) < MEGABYTE and (part := client.recv(65536)):
            content += part
    except ConnectionResetError:
        pass
    return content


def send(client: socket.socket, content: bytes, times: int) -> None:
    """Send content several times, or until the server closes the connection."""
    try:
        for _ in range(times):
            client.sendall(content)
    except OSError:
        pass


def call_with_headers(count: int) -> bytes:
    """Return a call to a webhook with that many headers."""
    headers = [b"host: x", b"content-length: 0", *(b"h%d:" % number for number in range(count - 2))]
    return b"POST /v1/hooks/code HTTP/1.1\r\n" + b"\r\n".join(headers) + b"\r\n\r\n"


def test_calls_that_wait_for_no_response_take_no_memory(server: Server) -> None:
    """A connection that sends calls faster than they get responses is closed, after the responses to the first."""
    before = memory_of(server)

    with connection(server) as client:
        sender = threading.Thread(target=send, args=(client, CALL * 1000, 500), daemon=True)
        sender.start()
        responses = received(client)
        memory = memory_of(server)

    sender.join()
    assert memory - before < 50 * MEGABYTE
    assert 1 <= responses.count(b"HTTP/1.1 404 ") <= MAX_PIPELINED + 1
    assert b"HTTP/1.1 400 " not in responses  # it would seem to belong to a call that is in progress


def test_a_few_calls_may_be_sent_at_once(server: Server) -> None:
    """Each gets its response, in order."""
    last = b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

    with connection(server) as client:
        client.sendall(CALL * MAX_PIPELINED + last)
        assert received(client).count(b"HTTP/1.1 404 ") == MAX_PIPELINED + 1


def test_a_call_gets_its_own_response_when_rubbish_follows(server: Server) -> None:
    """Not a 400, after which its caller would believe that nothing was done."""
    with connection(server) as client:
        client.sendall(b"POST /v1/hooks/code HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}}\r\n")
        assert received(client).startswith(b"HTTP/1.1 403 ")


def test_thousands_of_headers_delay_no_other_call(server: Server) -> None:
    """They are refused before anything reads them."""
    with connection(server) as client, server.client() as other:
        assert other.get("/health").status_code == 200
        client.sendall(call_with_headers(8000))
        began = time.monotonic()
        assert other.get("/health").status_code == 200
        passed = time.monotonic() - began
        refusal = received(client)

    assert passed < SOON
    assert refusal.startswith(b"HTTP/1.1 400 ")
    assert b"headers" in refusal


@pytest.mark.parametrize("count", [MAX_HEADERS, 30])
def test_a_call_may_have_many_headers(server: Server, count: int) -> None:
    """The limit is above that of common proxies."""
    with connection(server) as client:
        client.sendall(call_with_headers(count))
        assert client.recv(65536).startswith(b"HTTP/1.1 403 ")


def test_bodies_in_tiny_chunks_delay_no_other_call(server: Server) -> None:
    """What is read from a connection at a time is parsed in pieces, between which others get their turn."""
    head = b"POST /v1/hooks/code HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    stop = threading.Event()

    def attack() -> None:
        while not stop.is_set():
            with connection(server) as client:
                client.settimeout(2)
                send(client, head, 1)
                while not stop.is_set():
                    try:
                        client.sendall(b"1\r\na\r\n" * 40_000)
                    except OSError:
                        break

    attackers = [threading.Thread(target=attack) for _ in range(8)]
    for each in attackers:
        each.start()
    delays = []
    with server.client() as other:
        for _ in range(20):
            began = time.monotonic()
            assert other.get("/health").status_code == 200
            delays.append(time.monotonic() - began)
    stop.set()
    for each in attackers:
        each.join()

    assert sorted(delays)[len(delays) // 2] < SOON / 4


def test_a_large_body_arrives_whole(server: Server) -> None:
    """In pieces too: a body of half a megabyte in chunks of some bytes is read to its end."""
    parts = (b"x" * 100 for _ in range(5_000))

    with server.client() as client:
        assert client.post("/v1/hooks/code", content=parts).status_code == 403
