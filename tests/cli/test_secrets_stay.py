"""No secret of a connection is in anything that the product writes, whatever goes wrong with what it sends."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from eventbridge.connection import connections_from_environment
from eventbridge.settings import Settings
from eventbridge.stages.deliver import deliver_batch
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.stages.workplace import Workplace
from eventbridge.testing.receiver import Receiver

#: Part of every secret, with characters that URLs, JSON and HTML escape.
MARK = "hu5h"
SECRET = f"{MARK}/{MARK}+&<é>{MARK}"
VISIBLE = f"{MARK}/{MARK}+{MARK}=="
HMAC = base64.b64encode(f"{MARK}{MARK}{MARK}{MARK}{MARK}{MARK}".encode()).decode()

#: What goes wrong: a path of the receiver's, or a whole URL, whose port may be that of nobody.
FAILURES = {
    "mirror": "/mirror",
    "flaky": "/flaky",
    "bad": "/bad",
    "gone": "/gone",
    "redirect": "/redirect",
    "abort": "/abort",
    "hang": "/hang",
    "cut": "/cut",
    "refused": "http://127.0.0.1:{closed}",
    "unknown": "http://nothing.invalid",
    "plain": "https://127.0.0.1:{open}",
    "inside": "http://169.254.169.254",
    "large": "/head",
}
NEVER = "retry: {policy: own, attempts: 0}"
#: Dead letters that are shown one by one: whatever was written down of them is read anyway.
SHOWN = {"basic-mirror", "bearer-mirror", "query-mirror", "oauth-mirror", "url-mirror", "wrong-bad", "url-inside"}
IN_AN_HOUR = "retry: {policy: own, attempts: 3, initial: 1h, multiplier: 1, maximum: 1h}"


def connections(receiver: Receiver) -> dict[str, dict[str, Any]]:
    """Return a connection of each kind, as JSON; `secret_url` is still a path, or the beginning of a URL."""
    oauth = {"token_url": receiver.url(f"/token/600/{quote(SECRET, safe='')}"), "scope": "orders"}
    wrong = {"token_url": receiver.url("/token/600/another"), "client_secret_in": "body"}
    return {
        "basic": {"login": "shop", "password": SECRET},
        "bearer": {"extra": {"token": VISIBLE, "signing_secret": f"whsec_{HMAC}"}},
        "header": {"extra": {"api_key": f"ApiKey {SECRET}", "api_key_header": "authorization"}},
        "query": {"extra": {"api_key": SECRET, "api_key_query": "key"}},
        "oauth": {"login": "shop", "password": SECRET, "extra": oauth},
        "wrong": {"login": "shop", "password": SECRET, "extra": wrong},
        "url": {"extra": {"secret_url": f"/{quote(SECRET, safe='')}?sig={quote(VISIBLE, safe='')}"}},
    }


def rules_of(shop: Any, receiver: Receiver, closed: int) -> str:
    """Return the targets, one for each connection and failure, whose connections go into the shop's environment."""
    lines = []
    for kind, connection in connections(receiver).items():
        for failure, place in FAILURES.items():
            name = f"{kind}-{failure}"
            url = receiver.url(place) if place[0] == "/" else place.format(closed=closed, open=receiver.port)
            held = json.loads(json.dumps(connection))
            if kind == "url":
                held["extra"]["secret_url"] = url + held["extra"]["secret_url"]
            shop.environ[f"EVENTBRIDGE_CONN_{name.upper()}"] = json.dumps({"conn_type": "http", **held})
            given = "" if kind == "url" else f'url: "{url}/orders", '
            retry = IN_AN_HOUR if failure in ("flaky", "hang", "cut") else NEVER
            timeout = "timeout: 1s" if failure == "hang" else "timeout: 10s"
            fields = f"type: http, {given}allow_http: true, {timeout}, connection: {name}, {retry}"
            lines.append(f"      {name}: {{{fields}}}")
    return "\n".join(lines)


def texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield what every file holds, Parquet unpacked too."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        yield str(path), path.read_bytes()
        if path.suffix == ".parquet":
            cells = [cell for row in pq.read_table(path).to_pylist() for cell in row.values()]
            yield f"{path} unpacked", b"\n".join(_bytes(cell) for cell in cells)


def _bytes(cell: object) -> bytes:
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, list):
        return b"\n".join(map(_bytes, cell))
    if isinstance(cell, dict):
        return b"\n".join(map(_bytes, cell.values()))
    return str(cell).encode()


def shown(eventbridge: Callable[..., Any]) -> Iterator[tuple[str, bytes]]:
    """Yield what every command that looks prints, for people and for programs."""
    listed = eventbridge("dead-letters", "list", "--json", "--limit", "999").json
    names = [each["name"] for each in listed if each["target"] in SHOWN]
    assert len(names) == len(SHOWN)
    looking = [["status"], ["audit"], ["dead-letters", "list"], ["rules", "show", "all-orders"], ["rules", "check"]]
    for command in [*looking, *(["dead-letters", "show", name] for name in names)]:
        for form in ([], ["--json"]):
            result = eventbridge(*command, *form)
            yield " ".join([*command, *form]), (result.out + result.err).encode()


def test_no_secret_is_written_anywhere(
    shop: Any,
    eventbridge: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seven kinds of credentials by thirteen failures: store, ledger, bus, logs and what commands print have none."""
    caplog.set_level(logging.DEBUG, logger="eventbridge")
    log = tmp_path_factory.mktemp("receiver") / "log.jsonl"
    with Receiver(log, whole=True) as receiver, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take it meanwhile
        shop.write_rules(more=rules_of(shop, receiver, taken.getsockname()[1]))
        for name, value in shop.environ.items():
            monkeypatch.setenv(name, value)
        eventbridge("bus", "publish", "orders", shop.orders(1500))
        shop.deliver()
        requests = receiver.requests()
    written = [*texts(shop.folder), *shown(eventbridge), ("the log", caplog.text.encode())]

    authorizations = {request["headers"].get("authorization", "") for request in requests}
    secrets = {each.partition(" ")[2] for each in authorizations if each.startswith(("Basic ", "Bearer "))}
    assert len([each for each in secrets if MARK not in each]) >= 3, "no token, or nothing basic, was sent"
    forms = {MARK, HMAC, *secrets}
    found = [(where, each) for where, text in written for each in forms if each.encode() in text]
    assert found == []

    everything = b"\n".join(text for _, text in written)
    expected = ["Cannot POST /mirror", "*****", "AddressRefused", "NoToken", "TlsError", "HostUnknown", "Timeout"]
    expected += ["ConnectionRefused", "invalid_client"]
    assert [each for each in expected if each.encode() not in everything] == []


def test_a_connection_that_cannot_be_used_is_told_without_what_it_holds(
    shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The push fails with the connection's name; the chunk's error in the ledger, and the log, have no more."""
    caplog.set_level(logging.DEBUG, logger="eventbridge")
    held = {"conn_type": "http", "login": f"{MARK}:{MARK}", "password": SECRET}
    shop.environ["EVENTBRIDGE_CONN_CRM"] = json.dumps(held)
    shop.write_rules(more='      crm: {type: http, url: "https://crm.example/", connection: crm}')
    eventbridge("bus", "publish", "orders", shop.orders(500))
    work = Workplace.open(Settings.from_mapping(shop.environ), connections_from_environment(shop.environ))
    with closing(work):
        deliver_batch(work, "orders", InProcessRouter(work.store), threading.Event())
    written = [*texts(shop.folder), ("the log", caplog.text.encode())]

    assert [where for where, text in written if MARK.encode() in text] == []
    told = [where for where, text in written if b"Connection 'crm' has a login with a colon" in text]
    assert "the log" in told
    assert any("ledger" in where for where in told)
