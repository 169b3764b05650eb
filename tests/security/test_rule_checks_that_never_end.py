"""A rule file or event that costs hours holds no processor: its check ends in time, with its caller and its server."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from api.server import Installation, Server, order

from eventbridge import bounded_call
from eventbridge.bounded_call import call_bounded
from eventbridge.control.check_rules import _check_file
from eventbridge.errors import UserError
from eventbridge.processes import TimeSpent

#: Long enough for a busy machine, and far less than any of these calls takes.
SOON = 20.0
ELEMENTS = ", ".join(f'"x{number:05}"' for number in range(22_000))
WILDCARDS = ", ".join(f'{{wildcard: "*y{number}*z*"}}' for number in range(8_000))
#: A rule whose own test compares 22,000 texts with 8,000 wildcards, which takes minutes.
SLOW_TEST = f"""
buses: {{b: {{source: {{type: embedded}}}}}}
rules:
  r:
    bus: b
    pattern: {{data: {{a: [{WILDCARDS}]}}}}
    targets: {{t: {{type: file, path: t.jsonl}}}}
    tests: [{{event: {{type: t, data: {{a: [{ELEMENTS}]}}}}, matches: true}}]
"""
_SORT = f"a^({'b,' * 48_000}b)"
#: A rule with ten expressions of 96 KB: each is parsed in seconds.
SLOW_DEFINITIONS = json.dumps(
    {
        "buses": {"b": {"source": {"type": "embedded"}}},
        "rules": {
            "r": {
                "bus": "b",
                "pattern": {},
                "targets": {
                    f"t{number}": {
                        "type": "file",
                        "path": f"{number}.jsonl",
                        "transform": {"form": "JSONATA", "value": _SORT},
                    }
                    for number in range(10)
                },
            }
        },
    }
)
#: A pattern and an event with one value: folding it for each condition takes minutes.
SLOW_VALUE = {
    "pattern": {"data": {"a": [{"equals-ignore-case": f"x{number}"} for number in range(15_000)]}},
    "event": order(1, data={"a": "\u0130" * 400_000}),
}
CALLS: dict[str, tuple[str, Any]] = {
    "the test of a rule": ("/v1/rules/check", {"file": "a.yaml", "content": SLOW_TEST}),
    "the definitions of a rule": ("/v1/rules/check", {"file": "a.yaml", "content": SLOW_DEFINITIONS}),
    "one long value": ("/v1/rules/all-orders/test", SLOW_VALUE),
}


class Started(Installation):
    """An installation whose server is a process by itself, not the fork of another one: its children are counted."""

    def command(self, *arguments: str) -> list[str]:
        """Return a call of the command line."""
        if arguments[0] != "serve":
            return super().command(*arguments)
        return [sys.executable, "-m", "eventbridge.cli", *arguments]


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Server]:
    """A server of its own."""
    with Server(Started(tmp_path)) as running:
        yield running


def checking(server: Server) -> list[Path]:
    """Return the processes in which a server checks what callers sent."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server.process.pid and b"bounded_call" in (folder / "cmdline").read_bytes():
                found.append(folder)
    return found


def until(true: Callable[[], object]) -> bool:
    """Return whether something becomes true soon."""
    ends = time.monotonic() + SOON
    while not true():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def reading(server: Server) -> httpx.Client:
    """Return a client with the scope read."""
    return server.client(server.installation.token("reading", "read"))


def begin(client: httpx.Client, call: str) -> http.client.HTTPConnection:
    """Send a call, and return its connection without waiting for the response."""
    path, body = CALLS[call]
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port)
    headers = {"Authorization": client.headers["Authorization"], "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    return connection


def stay(client: httpx.Client, call: str, seconds: float) -> None:
    """Send a call, and wait for its response for so many seconds."""
    path, body = CALLS[call]
    with suppress(httpx.HTTPError):
        client.post(path, json=body, timeout=seconds)


@pytest.mark.parametrize("call", CALLS)
def test_a_check_ends_when_its_caller_leaves(call: str, busy: Server) -> None:
    """Its process ends soon after the connection was closed, and the next check gets its response."""
    with reading(busy) as client:
        connection = begin(client, call)
        until(lambda: checking(busy))
        processes = checking(busy)
        connection.close()
        ended = until(lambda: not any(each.exists() for each in processes))
        before = time.monotonic()
        response = client.post("/v1/rules/all-orders/test", json={"event": order(1)}, timeout=60)
        took = time.monotonic() - before

    assert (len(processes), ended) == (1, True)
    assert response.status_code == 200
    assert took < SOON


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_check_ends_with_the_server(how: signal.Signals, busy: Server) -> None:
    """The server does not wait for a check, and leaves no process behind, even if it is killed."""
    with reading(busy) as client:
        thread = threading.Thread(target=stay, args=(client, "the test of a rule", 120.0))
        thread.start()
        began = until(lambda: checking(busy))
        processes = checking(busy)
        before = time.monotonic()
        busy.process.send_signal(how)
        busy.process.wait()
        took = time.monotonic() - before
        thread.join()

    assert began
    assert took < SOON
    assert until(lambda: not any(each.exists() for each in processes))


@pytest.mark.parametrize("content", [SLOW_TEST, SLOW_DEFINITIONS], ids=["tests", "definitions"])
def test_a_check_has_so_much_processor_time(content: str) -> None:
    """A loop that checks no clock ends too: the kernel crashes the process."""
    with pytest.raises(TimeSpent, match=r"more than 2 s of processor time\. Split the file"):
        call_bounded(_check_file, None, {}, Path("a.yaml"), content.encode(), seconds=2.0, remedy="Split the file")


def test_a_check_ends_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits takes no processor time, and ends nevertheless."""
    monkeypatch.setattr(bounded_call, "CLOCK_SECONDS", 1.0)
    with pytest.raises(TimeSpent, match=r"checking the input took more than 1 s\. Send less"):
        call_bounded(time.sleep, 600, seconds=10.0, remedy="Send less")


def test_a_check_has_so_much_memory() -> None:
    """What takes a gigabyte is refused, and the next call gets a process of its own."""
    with pytest.raises(UserError, match=r"checking the input used more than 1,024 MiB of memory\. Send less"):
        call_bounded(bytes, 2 << 30, seconds=10.0, remedy="Send less")
    with pytest.raises(UserError, match="checking the input crashed its process"):
        call_bounded(os.abort, seconds=10.0, remedy="Send less")

    assert call_bounded(len, b"abc", seconds=10.0, remedy="") == 3


def test_a_check_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process has no variable of the one that started it."""
    bounded_call.children.end_idle()
    monkeypatch.setenv("EVENTBRIDGE_CONN_CRM", "hush")

    assert call_bounded(os.getenv, "EVENTBRIDGE_CONN_CRM", seconds=10.0, remedy="") is None


def test_an_ordinary_check_takes_no_new_process(busy: Server) -> None:
    """The process of the first check is used for the next ones."""
    with reading(busy) as client:
        used = set()
        for _ in range(5):
            response = client.post("/v1/rules/all-orders/test", json={"event": order(1)}, timeout=60)
            assert response.status_code == 200
            used |= {each.name for each in checking(busy)}

    assert len(used) == 1
