"""One installation for the tests of agents, with delivered, waiting, dead-lettered and malformed events."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from agents.agent import Agent
from api.server import Installation, Server, order

CARD = "4111111111111111"
RULES = """
rules:
  billed:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">=", 17]}]}}
    targets:
      webhook: {type: http, url: "http://127.0.0.1:9/hook", allow_http: true,
                retry: {policy: custom, max_retries: 0}}
  waiting:
    owner: crm
    bus: orders
    pattern: {type: [order.placed], data: {amount: [17]}}
    targets:
      partner: {type: http, url: "http://127.0.0.1:9/partner", allow_http: true,
                retry: {policy: custom, max_retries: 5, initial_delay: 1h, max_delay: 2h}}
  numbers:
    bus: orders
    pattern: {type: [order.placed]}
    targets:
      crm: {type: file, path: FOLDER/crm.jsonl, transform: {form: JSONATA, value: "$number(data.card & 'x')"}}
"""


class McpServer(Server):
    """`eventbridge mcp --http` on a free port."""

    COMMAND = ("mcp", "--http", "--port", "0", "--allow-host", "mcp.example.com")


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Orders 16 to 18, a cancelled order, and a malformed event, all with the number of a card."""
    folder = tmp_path_factory.mktemp("agents")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8")
    (folder / "rules" / "more.yaml").write_text(RULES.replace("FOLDER", str(folder)))
    events = [order(number, data={"amount": number, "card": CARD}) for number in (16, 17, 18)]
    events += [order(99, type="order.cancelled", data={"amount": 99, "card": CARD}), order(0, time=CARD)]
    (folder / "orders.jsonl").write_text("\n".join(map(json.dumps, events)))
    made.run("events", "publish", "orders", str(folder / "orders.jsonl"))
    made.deliver("orders")
    return made


@pytest.fixture(scope="session")
def server(installation: Installation) -> Iterator[McpServer]:
    """The server over HTTP, which all tests share. A signal ends it with 0 after all of them, with a session open."""
    with McpServer(installation) as running:
        yield running
        with Agent.over_http(running.url, installation.token("last", "read")) as last:
            last.call("list_targets")
            code, log = running.end(signal.SIGTERM)
    assert (code, "Traceback" in log) == (0, False), log


@pytest.fixture(scope="session")
def agent(installation: Installation, server: McpServer) -> Iterator[Agent]:
    """An agent that may not see payloads."""
    with Agent.over_http(server.url, installation.token("blind", "read")) as connected:
        yield connected


@pytest.fixture(scope="session")
def seeing(installation: Installation, server: McpServer) -> Iterator[Agent]:
    """An agent that may see payloads."""
    with Agent.over_http(server.url, installation.token("sees", "read", "payloads")) as connected:
        yield connected
