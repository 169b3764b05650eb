"""Somebody sends many large bodies and never ends them: those are refused at the bound, and other calls get through."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
from api.server import Server, order

from eventbridge.api.bodies import MAX_BYTES
from eventbridge.api.middleware import MAX_HELD_BYTES

#: More than fit into the bound.
STALLED = MAX_HELD_BYTES // MAX_BYTES + 3
_BODY = bytes(MAX_BYTES - 1)


@contextmanager
def stalled_bodies(server: Server, path: str, secret: str) -> Iterator[list[socket.socket]]:
    """Hold calls open that have sent all of a body but its last byte."""
    parts = urlsplit(server.url)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/cloudevents+json\r\n"
    head += f"authorization: Bearer {secret}\r\ncontent-length: {MAX_BYTES}\r\n\r\n"
    with ExitStack() as opened:
        calls = []
        for _ in range(STALLED):
            address = str(parts.hostname), parts.port or 0
            calls.append(opened.enter_context(socket.create_connection(address, timeout=20)))
            calls[-1].sendall(head.encode() + _BODY)
        yield calls


@pytest.mark.parametrize("path", ["/v1/buses/orders/events", "/v1/hooks/code"])
def test_stalled_bodies_block_no_other_call(server: Server, path: str) -> None:
    """With a token of its own, or none for a webhook: each later call gets its response, and the oldest body a 503."""
    publisher, attacker = (server.installation.token(f"t-{uuid.uuid4()}", "publish:orders") for _ in range(2))
    with stalled_bodies(server, path, attacker) as calls, server.client(publisher) as client:
        headers = {"content-type": "application/cloudevents+json"}
        statuses = {
            client.post(path, content=json.dumps(order(number)), headers=headers).status_code for number in range(20)
        }
        oldest = calls[0].recv(65536)

    assert statuses == {403 if "hooks" in path else 200}
    assert oldest.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5" in oldest
