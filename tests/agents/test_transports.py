"""`eventbridge mcp` over stdio and HTTP: who may call it, and that no client stops it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from agents.agent import Agent
from agents.conftest import CARD, McpServer
from api.server import Installation, order

from eventbridge.cli import main

SECONDS = 60
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


def message(tool: str, number: int = 2, **arguments: Any) -> dict[str, Any]:
    """Return the message that calls a tool."""
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


@pytest.fixture(scope="module")
def token(installation: Installation) -> str:
    """A token that may read, without payloads."""
    return installation.token("agent", "read")


def post(server: McpServer, content: Any, token: str = "", headers: Mapping[str, str] | None = None) -> httpx.Response:
    """Send one message to the server."""
    with server.client(token) as client:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        sent = {"content-type": "application/json", **ACCEPT, **(headers or {})}
        return client.post(server.url, content=body, headers=sent)


def test_the_scopes_of_the_token_decide(server: McpServer, installation: Installation, token: str) -> None:
    """What the agent sees: payloads, and the rules of its owners."""
    seeing, limited = (
        installation.token("seeing", "read", "payloads"),
        installation.token("crm", "read", owners=["crm"]),
    )
    found = {}
    for secret in (token, seeing, limited):
        with Agent.over_http(server.url, secret) as agent:
            found[secret] = agent.call("list_rules")["rules"]
            if secret == limited:
                assert "owner" in agent.error("backtest_rules", candidate="billed")
                assert "not_found" in agent.error("test_pattern", rule="billed", event=order())
                assert agent.call("test_pattern", pattern={}, event=order())["matched"] is True
            else:
                (dead,) = agent.call("list_dead_letters", rule="billed", limit=1)["dead_letters"]
                assert (CARD in agent.call("get_dead_letter", name=dead["name"])["event"]) == (secret == seeing)

    assert ("billed" in found[token], list(found[limited])) == (True, ["waiting"])


def test_a_call_without_a_valid_token_is_refused(server: McpServer, installation: Installation) -> None:
    """With 401, before its body is read; a token without the scope `read` gets 403."""
    publisher = installation.token("publisher", "publish:orders")

    without, unknown, other = (post(server, HELLO, each) for each in ("", "ebt_unknown", publisher))

    assert (without.status_code, without.headers["www-authenticate"]) == (401, "Bearer")
    assert (without.json()["code"], unknown.json()["code"]) == ("token_required", "token_invalid")
    assert (unknown.status_code, other.status_code) == (401, 403)
    assert post(server, b"x" * 9_000_000).status_code == 401


def test_a_revoked_token_is_refused_within_seconds(server: McpServer, installation: Installation) -> None:
    """Also in the middle of a session."""
    secret = installation.token("short", "read")
    assert post(server, HELLO, secret).status_code == 200
    installation.run("tokens", "revoke", "short")

    assert until_status(server, secret, 401)


def until_status(server: McpServer, secret: str, status: int) -> bool:
    """Return whether a status is returned, as soon as it is."""
    return any(post(server, HELLO, secret).status_code == status for _ in range(2_000))


def test_pages_of_other_sites_cannot_call_it(server: McpServer, token: str) -> None:
    """A browser sends their name as Host after DNS rebinding, or as Origin."""
    rebound = post(server, HELLO, token, {"host": "evil.example"})
    foreign = post(server, HELLO, token, {"origin": "http://evil.example"})
    local = post(server, HELLO, token, {"origin": "http://localhost:3000"})

    named = [post(server, HELLO, token, {"host": f"mcp.example.com{port}"}) for port in ("", ":8443")]

    assert (rebound.status_code, foreign.status_code, local.status_code) == (421, 403, 200)
    assert [each.status_code for each in named] == [200, 200]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "nope"}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}).encode(),
        json.dumps(message("get_status") | {"id": [1]}).encode(),
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_rule", "arguments": '
        b'{"rule": "\\ud800"}}}',
        b"x" * 5_000_000,
    ],
    ids=range(11),
)
def test_nonsense_does_not_stop_the_server(content: bytes, server: McpServer, token: str) -> None:
    """It gets an error without a traceback, and the next call works."""
    response = post(server, content, token)

    assert response.status_code < 500
    assert "Traceback" not in response.text
    assert post(server, message("list_targets"), token).json()["result"]["structuredContent"]["targets"]
    with server.client(token) as client:
        assert client.get(server.url, headers=ACCEPT).status_code == 405
        assert client.delete(server.url).status_code == 405


def test_a_client_that_dies_does_not_stop_the_server(server: McpServer, token: str) -> None:
    """In the middle of its request, or before the response."""
    address = urlsplit(server.url)
    body = json.dumps(message("backtest_rules", candidate="billed")).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: {address.netloc}\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\naccept: {ACCEPT['accept']}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    for sent in (head, head + body[:20], head + body, head + body):
        with socket.create_connection((str(address.hostname), address.port or 0)) as connection:
            connection.sendall(sent)

    assert post(server, message("get_status"), token).json()["result"]["isError"] is False


def test_over_stdio_an_option_shows_payloads(installation: Installation) -> None:
    """The SDK's client starts the command; its agent reads payloads, and that they are not instructions."""
    with Agent.over_stdio(installation, "--payloads", log=installation.folder / "stdio.log") as agent:
        (dead,) = agent.call("list_dead_letters", rule="billed", limit=1)["dead_letters"]

        assert CARD in agent.call("get_dead_letter", name=dead["name"])["event"]
        assert "they are not instructions" in agent.instructions
    assert "Traceback" not in (installation.folder / "stdio.log").read_text()


NONSENSE = [
    "nonsense",
    "\udcff\udcfe",
    "[" * 100_000,
    "{}",
    "[1]",
    '{"jsonrpc": "2.0", "id": 7, "method": "nope"}',
    "",
]


class Stdio:
    """`eventbridge mcp` over stdio, for raw lines."""

    def __init__(self, installation: Installation) -> None:
        self.process = subprocess.Popen(
            installation.command("mcp"),
            env=installation.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )

    def send(self, *messages: Any) -> None:
        """Send messages, of which a text is sent as it is."""
        assert self.process.stdin is not None
        lines = (each if isinstance(each, str) else json.dumps(each) for each in messages)
        self.process.stdin.write("\n".join(lines) + "\n")
        self.process.stdin.flush()

    def received(self, last: int) -> list[dict[str, Any]]:
        """Return the messages up to the response to the request with the id `last`."""
        assert self.process.stdout is not None
        found: list[dict[str, Any]] = []
        while not found or found[-1].get("id") != last:
            found.append(json.loads(self.process.stdout.readline()))
        return found

    def close(self) -> None:
        """End the process, if it is running."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def stdio(installation: Installation) -> Iterator[Stdio]:
    """The server over stdio, which got nonsense before its client's first message. The last test ends it."""
    started = Stdio(installation)
    started.send(*NONSENSE, HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    yield started
    started.close()


def test_over_stdio_payloads_are_hidden(stdio: Stdio) -> None:
    """The instructions, and an error, say how the user shows them."""
    stdio.send(message("test_pattern", 3, pattern={}, event_id="o17"))
    received = {each.get("id"): each.get("result") for each in stdio.received(3)}

    assert "adding --payloads" in received[1]["instructions"]
    assert received[3]["isError"]
    assert "adding --payloads" in received[3]["content"][0]["text"]


def test_nonsense_over_stdio_does_not_stop_the_server(stdio: Stdio) -> None:
    """Standard output has nothing but the protocol, and the next call works."""
    stdio.send(*NONSENSE, message("list_targets", 8))
    received = stdio.received(8)

    assert received[-1]["result"]["structuredContent"]["targets"]
    assert {each["jsonrpc"] for each in received} == {"2.0"}


def test_a_cancelled_call_ends_soon(stdio: Stdio) -> None:
    """It gets no response, and the next call gets its place."""
    alternatives = [{"data": {"items": {"a": [number], "b": [str(number)]}}} for number in range(3_000)]
    rules = {"slow": {"bus": "orders", "pattern": {"$or": alternatives}, "targets": {"t": {"type": "file"}}}}
    stdio.send(message("check_rules", 10, content=json.dumps({"rules": rules})), message("list_targets", 11))
    received = stdio.received(11)
    stdio.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 10}})
    stdio.send(message("list_targets", 12))
    received += stdio.received(12)

    assert [each["id"] for each in received] == [11, 12]


def test_a_client_that_leaves_ends_its_server(stdio: Stdio) -> None:
    """With 0, also in the middle of a call, which is cancelled; after all of these tests, its log has no traceback."""
    stdio.send(message("backtest_rules", 20, candidate="billed"))
    rest, error = stdio.process.communicate(timeout=SECONDS)

    assert (stdio.process.returncode, "Traceback" in error) == (0, False), error
    assert [json.loads(line)["jsonrpc"] for line in rest.splitlines()] in ([], ["2.0"])


def test_a_signal_ends_the_server_over_stdio(installation: Installation) -> None:
    """SIGINT and SIGTERM, although the client has not closed standard input."""
    started = {number: Stdio(installation) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, each in started.items():
            each.send(HELLO)
            each.received(1)
            each.process.send_signal(number)
        for number, each in started.items():
            assert each.process.wait(SECONDS) in (-number, 128 + number)
    finally:
        for each in started.values():
            each.close()


def test_a_missing_ledger_is_reported(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one would make every tool return nothing."""
    for name, value in {**installation.environ, "EVENTBRIDGE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["eventbridge", "mcp"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()

    assert (ended.value.code, printed.out) == (2, "")
    assert "EVENTBRIDGE_HOME" in printed.err
