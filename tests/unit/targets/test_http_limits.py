"""What an http target may cost at most: time until there is a connection, and bytes of a response."""

from __future__ import annotations

import select
import socket
import uuid
from contextlib import ExitStack, closing

import pycurl
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, later, now

from eventbridge.config.connection import Connection
from eventbridge.model.outcome import Response
from eventbridge.targets.http.exchange import READ_BYTES
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.http.target import HttpTarget
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target

#: What libcurl hands over at a time, at most (CURL_MAX_WRITE_SIZE).
_AT_ONCE_BYTES = 16 * 1024


def target_of(url: str, **seconds: float) -> Target:
    """Open a target."""
    rule = HttpFields.model_validate({"name": "crm", "type": "http", "url": url, "allow_http": True} | seconds)
    return open_target("r", rule, _no_connection, now, LOOPBACK)


def responses_of(target: Target, count: int = 1) -> list[Response]:
    """Deliver requests and return their responses."""
    requests = [Request(number, str(uuid.uuid4()), b"{}", "application/json") for number in range(count)]
    return [response for _, response in target.deliver(requests, later())]


def response_of(url: str, **seconds: float) -> Response:
    """Deliver one request and return its response."""
    with closing(target_of(url, **seconds)) as target:
        [response] = responses_of(target)
        return response


def test_of_a_huge_body_nothing_is_taken_beyond_its_limit(receiver: Receiver) -> None:
    """By libcurl's own count of what it could hand over, whatever the server sent; and 20 KB of it are kept."""
    with closing(target_of(receiver.url("/huge"))) as target:
        assert isinstance(target, HttpTarget)
        responses = responses_of(target, 5)
        assert target._engine is not None
        idle = [exchange for kept in target._engine._idle.values() for exchange in kept]
        taken = [exchange.curl.getinfo(pycurl.SIZE_DOWNLOAD_T) for exchange in idle]

    assert taken
    assert all(READ_BYTES - _AT_ONCE_BYTES <= size <= READ_BYTES for size in taken)
    assert [response.response_head for response in responses] == [b"x" * 20 * 1024] * 5


def test_a_connection_that_does_not_come_about_costs_what_connect_says() -> None:
    """A host that drops what is sent to it, as one behind a firewall does, and one that never speaks TLS."""
    with socket.socket() as listener, ExitStack() as taken:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        silent = response_of(f"https://127.0.0.1:{address[1]}/", timeout_seconds=20.0, connect_seconds=0.5)
        while _connects(taken.enter_context(socket.socket()), address):
            pass  # until the kernel takes no more, as no server accepts them
        dropped = response_of(f"http://127.0.0.1:{address[1]}/", timeout_seconds=20.0, connect_seconds=0.5)

    for response in (silent, dropped):
        assert (response.accepted, response.code, response.error_class) == (False, None, "Timeout")
        assert 450 < response.duration_ms < 4000, "by default it would be 5 s"


def _connects(client: socket.socket, address: tuple[str, int]) -> bool:
    client.setblocking(False)
    client.connect_ex(address)
    return bool(select.select([], [client], [], 0.5)[1])


def test_a_response_may_take_longer_than_connecting(receiver: Receiver) -> None:
    """`connect` is over once there is a connection."""
    assert response_of(receiver.url("/delay/900"), timeout_seconds=20.0, connect_seconds=0.3).code == 200


def _no_connection(connection_id: str) -> Connection:
    raise AssertionError(f"unexpected look-up of {connection_id}")
