"""A foreign server that never responds, a target or a broker, delays only the calls that wait for it."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest
from api.pages import OWN
from api.server import Installation, Server, order

from eventbridge.api.call_pools import MAX_AT_TARGETS, WAIT_SECONDS

#: More than asyncio's pool and the framework's have threads.
MANY = 60
#: Long enough for a busy machine, and far less than the timeouts of all these calls one after the other.
SOON = 15.0
TIMEOUT_SECONDS = 30
BROKERS = 8
RULES = """
buses:
  orders: {{source: {{type: embedded}}}}
{buses}
rules:
  slow:
    bus: orders
    pattern: {{}}
    targets:
      silent: {{type: http, url: "http://127.0.0.1:{port}/", allow_http: true, timeout: {timeout}s}}
      archive: {{type: file, path: {folder}/archive.jsonl}}
{rules}
"""


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """A port that accepts every connection, and never responds."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=1_000)) as listener:
        kept: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    kept.append(listener.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        for each in kept:
            each.close()


@pytest.fixture
def server(silent: int, tmp_path: Path) -> Iterator[Server]:
    """A server with a target, and with buses, whose servers never respond."""
    broker = json.dumps({"conn_type": "kafka", "host": "127.0.0.1", "port": silent})
    made = Installation(tmp_path, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8", EVENTBRIDGE_CONN_BROKER=broker)
    names = [f"away{number}" for number in range(BROKERS)]
    written = RULES.format(
        port=silent,
        timeout=TIMEOUT_SECONDS,
        folder=tmp_path,
        buses="\n".join(f"  {each}: {{source: {{type: kafka, connection: broker, topics: [t]}}}}" for each in names),
        rules="\n".join(
            f"  {each}: {{bus: {each}, pattern: {{}}, targets: {{a: {{type: file, path: {tmp_path}/a.jsonl}}}}}}"
            for each in names
        ),
    )
    (tmp_path / "rules" / "orders.yaml").write_text(written)
    with Server(made) as running:
        yield running


def leave(clients: int, call: Callable[[httpx.Client], object], server: Server, token: str) -> None:
    """Make calls at once and close their connections after a second, before there are responses."""

    def ask(_: int) -> None:
        with server.client(token) as client, suppress(httpx.TimeoutException):
            client.timeout = httpx.Timeout(30, read=1)
            call(client)

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(ask, range(clients)))


def took(call: Callable[[], httpx.Response]) -> tuple[int, float]:
    """Return the status of a call, and the seconds that it took."""
    began = time.monotonic()
    return call().status_code, time.monotonic() - began


def others(server: Server) -> dict[str, tuple[int, float]]:
    """Return the statuses and the times of calls that need neither a target nor a broker."""
    fresh = server.installation.token(f"fresh{time.monotonic_ns()}", "read", "publish:orders")
    with server.client(fresh) as client:
        return {
            "health": took(lambda: client.get("/health")),
            "rules": took(lambda: client.get("/v1/rules")),
            "page": took(lambda: client.get("/page/rules", headers={"cookie": f"eventbridge_token={fresh}"})),
            "publish": took(
                lambda: client.post(
                    "/v1/buses/orders/events",
                    json=[order()],
                    headers={"content-type": "application/cloudevents-batch+json"},
                )
            ),
        }


def assert_soon(found: dict[str, tuple[int, float]]) -> None:
    """Check that every call succeeded in time."""
    assert {name: status for name, (status, _) in found.items()} == dict.fromkeys(found, 200)
    assert max(seconds for _, seconds in found.values()) < SOON, found


@pytest.mark.parametrize("what", ["send", "check"])
def test_calls_to_a_silent_target_delay_no_others(server: Server, what: str) -> None:
    """Health, tokens, pages and publishing respond while callers wait, and after they have left."""
    token = server.installation.token("operator", "read", "operate")
    body = {"event": order()} if what == "send" else None
    waiting = threading.Thread(
        target=leave,
        args=(MANY, lambda client: client.post(f"/v1/targets/slow/silent/{what}", json=body), server, token),
    )
    waiting.start()
    during = others(server)
    waiting.join()

    assert_soon(during)
    assert_soon(others(server))


def test_pages_that_try_a_silent_target_delay_no_others(server: Server) -> None:
    """The form of the page has the same bound as the call."""
    token = server.installation.token("operator", "read", "operate")
    key = hashlib.sha256(f"form of {token}".encode()).hexdigest()
    cookie = {"cookie": f"eventbridge_token={token}", **OWN}
    form = {"do": "send", "body": json.dumps(order()), "key": key}
    leave(MANY, lambda client: client.post("/page/targets/slow/silent/try", data=form, headers=cookie), server, "")

    assert_soon(others(server))


def test_a_try_ends_with_its_caller(server: Server) -> None:
    """The places are free again soon after the callers left, and not when the target's timeout is over."""
    token = server.installation.token("operator", "read", "operate")
    leave(
        MAX_AT_TARGETS,
        lambda client: client.post("/v1/targets/slow/silent/send", json={"event": order()}),
        server,
        token,
    )
    with server.client(token) as client:
        found = took(lambda: client.post("/v1/targets/slow/archive/send", json={"event": order()}))

    assert found[0] == 200
    assert found[1] < WAIT_SECONDS, found


def test_more_tries_than_have_a_place_are_refused(server: Server) -> None:
    """The response says so after a few seconds, and when to send the call again."""
    token = server.installation.token("operator", "read", "operate")
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(MAX_AT_TARGETS))
        clients = [stack.enter_context(server.client(token)) for _ in range(MAX_AT_TARGETS)]
        for each in clients:
            each.timeout = httpx.Timeout(15)
            threads.submit(each.post, "/v1/targets/slow/silent/send", json={"event": order()})
        time.sleep(2)  # until all have their places: nothing shows it
        with server.client(token) as client:
            refused = client.post("/v1/targets/slow/silent/check")

    assert (refused.status_code, refused.headers["retry-after"]) == (503, str(int(WAIT_SECONDS)))
    assert f"busy with {MAX_AT_TARGETS} calls that wait for targets" in refused.json()["detail"]


@pytest.mark.parametrize(
    "path", ["/v1/status", "/v1/buses", "/v1/events/e1", "/page", "/page/lag.json", "/page/event?id=e1"]
)
def test_calls_that_ask_a_silent_broker_delay_no_others(server: Server, path: str) -> None:
    """Reading the offsets of a bus waits for its broker, in threads that no other call needs."""
    token = server.installation.token("reader", "read")
    leave(
        MANY,
        lambda client: client.get(path, headers={"cookie": f"eventbridge_token={token}"}),
        server,
        token,
    )

    assert_soon(others(server))


def test_publishing_to_silent_brokers_delays_no_other_bus(server: Server) -> None:
    """Each bus has threads of its own, also to ask how full it is."""
    token = server.installation.token("publisher", "publish:*")
    batch = {"content-type": "application/cloudevents-batch+json"}
    numbers = iter(range(MANY))
    leave(
        MANY,
        lambda client: client.post(f"/v1/buses/away{next(numbers) % BROKERS}/events", json=[order()], headers=batch),
        server,
        token,
    )

    assert_soon(others(server))
