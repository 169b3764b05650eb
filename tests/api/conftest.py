"""Fixtures of the API's tests: one server for a module."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from api.server import Installation, Server, order


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that runs."""
    with Server(Installation(tmp_path_factory.mktemp("served"))) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """A client whose token may publish to the bus orders."""
    with server.client(server.installation.token("shop", "publish:orders")) as opened:
        yield opened


#: One rule whose target never takes anything, so that its deliveries are dead letters at once.
REFUSED = """
rules:
  refused:
    owner: crm
    bus: orders
    pattern: {{type: [order.placed], data: {{amount: [{{numeric: [">", 1]}}]}}}}
    targets:
      crm: {{type: http, url: "http://127.0.0.1:9/nowhere", allow_http: true, retry: {{policy: own, attempts: 0}}}}
"""


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose installation has delivered three orders, one of them to no avail, and got one that is none."""
    folder = tmp_path_factory.mktemp("told")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8")
    (folder / "rules" / "refused.yaml").write_text(REFUSED.format(folder=folder))
    events = folder / "orders.jsonl"
    markup = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    escaped = order(1, data={"amount": 1, "text": "\ud800"}, subject='the "Zürich"')  # half a character, as escapes
    hostile = order(2, data={"amount": 2, "text": markup}, subject=markup)
    events.write_text("\n".join([*(json.dumps(each) for each in (order(0), escaped, hostile)), f"no event {markup}"]))
    made.run("bus", "publish", "orders", str(events))
    made.deliver("orders")
    with Server(made) as running:
        yield running


@pytest.fixture(scope="session")
def looking(told: Server) -> Iterator[httpx.Client]:
    """A client whose token may look."""
    with told.client(told.installation.token("looker", "read", "payloads")) as opened:
        yield opened
