"""Events with a response are on the bus, whatever happens to the server."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
from api.server import Installation, Server, order

CALLERS = 4
PATH = "/v1/buses/orders/events"
BATCHED = {"content-type": "application/cloudevents-batch+json"}


def publish_until_it_ends(server: Server, token: str, caller: int, enough: Callable[[], object]) -> list[Any]:
    """Publish batches until the server stops, and return the results of the responses."""
    responded: list[Any] = []
    with server.client(token) as client:
        number = 0
        while True:
            events = [order(id=f"{caller}-{number}-{position}") for position in range(20)]
            number += 1
            try:
                response = client.post(PATH, json=events, headers=BATCHED)
            except httpx.TransportError:
                return responded
            assert response.status_code == 200, response.text
            responded += response.json()["results"]
            if len(responded) >= 400:
                enough()


def publish_and_end(made: Installation, number: int) -> tuple[list[Any], int, str]:
    """Publish from several callers, stop the server by a signal meanwhile, and return the responses."""
    enough = Event()
    token = made.token("shop", "publish:orders")
    with Server(made) as server, ThreadPoolExecutor(CALLERS) as threads:
        callers = [
            threads.submit(publish_until_it_ends, server, token, caller, enough.set) for caller in range(CALLERS)
        ]
        assert enough.wait(60)
        code, said = server.end(number)
        return [result for caller in callers for result in caller.result()], code, said


def ids(made: Installation) -> dict[tuple[int, int], str]:
    """Return the ids of the events on the bus, by partition and offset."""
    return {position: json.loads(body)["id"] for position, body in made.bodies().items()}


def test_events_with_a_response_survive_kill_9(tmp_path: Path) -> None:
    """Every event is at the position of its result; the next server continues."""
    made = Installation(tmp_path)

    responded, code, _ = publish_and_end(made, signal.SIGKILL)

    lying = ids(made)
    assert code == -signal.SIGKILL
    assert len(responded) >= 400
    assert [each for each in responded if lying[each["partition"], each["offset"]] != each["id"]] == []
    with Server(made) as server, server.client(made.token("next", "publish:orders")) as client:
        assert client.post(PATH, json=[order()], headers=BATCHED).status_code == 200


def test_a_caller_that_disconnects_early_publishes_nothing(tmp_path: Path) -> None:
    """Half of a body is neither a call nor an error: the server logs nothing, and continues."""
    made = Installation(tmp_path)
    token = made.token("shop", "publish:orders")
    head = f"POST {PATH} HTTP/1.1\r\nhost: shop\r\nauthorization: Bearer {token}\r\ncontent-length: 1000\r\n"
    head += f"content-type: {BATCHED['content-type']}\r\n\r\n["
    with Server(made) as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
            connection.sendall(head.encode() + json.dumps(order()).encode())
        with server.client(token) as client:
            assert client.post(PATH, json=[order(1)], headers=BATCHED).status_code == 200
        ended = server.end()

    assert ended == (0, "")
    assert list(ids(made).values()) == ["o1"]


def test_sigterm_finishes_calls_in_progress(tmp_path: Path) -> None:
    """Calls in progress get a response: the bus has exactly the events with a response."""
    made = Installation(tmp_path)

    responded, code, said = publish_and_end(made, signal.SIGTERM)

    assert (code, said) == (0, "")
    assert sorted(each["id"] for each in responded) == sorted(ids(made).values())
