"""With the store on S3 behind a bad network, temporary faults only delay deliveries, and nothing is lost.

`make test-s3` runs the same against s3proxy.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from demo.s3_server import S3Server
from pipeline.modes import deliver_all
from services.fault_proxy import Fault, FaultProxy

from eventbridge.repair.audit import audit

#: A request of so many is disturbed, the first of them among the first that are made.
EVERY = 6
EVENTS = 12


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """A proxy before the S3 server, the real one where `make test-s3` has started one."""
    port = int(os.environ.get("TEST_S3_PORT") or urlsplit(s3_server.endpoint).port or 0)
    with FaultProxy(port) as proxy:
        yield proxy


@pytest.fixture
def on_s3(site: Any, proxy: FaultProxy) -> Any:
    """The installation, its store an empty place behind the proxy."""
    site.environ["EVENTBRIDGE_STORE_URI"] = f"s3://lake@tests/{uuid.uuid4().hex}"
    site.environ["EVENTBRIDGE_CONN_LAKE"] = proxy.connection
    return site


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_a_delivery_over_s3_survives_a_bad_network(
    fault: Fault, on_s3: Any, proxy: FaultProxy, order: Callable[..., bytes], tmp_path: Path
) -> None:
    """Every sixth request meets one fault, reads and writes alike: all is delivered once, everything is reconciled."""
    numbers = count(3)
    proxy.fault = lambda method: fault if next(numbers) % EVERY == 0 else None
    on_s3.write_rules(
        "buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}}\n"
        "rules: {all: {bus: orders, pattern: {}, targets: {lines: {type: file, path: "
        f"{tmp_path}/lines.jsonl}}}}}}}}\n"
    )
    on_s3.publish(*(order(number) for number in range(EVENTS)))

    deliver_all(on_s3.runtime, "orders")

    assert proxy.met >= 4, f"of {proxy.seen} requests"
    assert audit(on_s3.runtime).differences == ()
    lines = (tmp_path / "lines.jsonl").read_text().splitlines()
    assert len(lines) == EVENTS
    assert len({json.loads(line)["id"] for line in lines}) == EVENTS


def test_the_proxy_passes_on_that_a_server_is_done_with_a_connection() -> None:
    """One that speaks unasked on a kept connection: its client hears the end, and no response to its next call."""
    with socket.create_server(("127.0.0.1", 0)) as server, FaultProxy(server.getsockname()[1]) as proxy:

        def response() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=response, daemon=True).start()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as client:
            client.sendall(b"PUT /a/b HTTP/1.1\r\nHost: s3\r\nContent-Length: 0\r\n\r\n")
            received = b"".join(iter(lambda: client.recv(1_000), b""))

    assert received == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
