"""No secret of a connection is in anything that the product writes, whatever goes wrong with what it sends."""

from __future__ import annotations

import base64
import json
import logging
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import certificates
import pytest
from demo.receiver import Receiver
from demo.s3_server import S3Server
from written import texts, texts_of

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import deliver_batch
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.stop import Stop
from eventbridge.store.open import open_store

#: Part of every secret, with characters that URLs, JSON and HTML escape.
MARK = "hu5h"
SECRET = f"{MARK}/{MARK}+&<é>{MARK}"
VISIBLE = f"{MARK}/{MARK}+{MARK}=="
HMAC = base64.b64encode(f"{MARK}{MARK}{MARK}{MARK}{MARK}{MARK}".encode()).decode()
ED25519 = base64.b64encode(b"the seed of a key, of 32 letters").decode()

#: What goes wrong: a path of the receiver's, or a whole URL, whose port may have no server.
FAILURES = {
    "mirror": "/mirror",
    "items": "/blame",
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
NEVER = "retry: {policy: custom, max_retries: 0}"
#: Dead letters that are shown one by one: whatever was written down of them is read anyway.
SHOWN = {
    "basic-mirror",
    "bearer-items",
    "bearer-mirror",
    "query-items",
    "signed-mirror",
    "mutual-mirror",
    "query-mirror",
    "oauth-mirror",
    "url-mirror",
    "wrong-bad",
    "url-inside",
}
#: Every command that only looks, but those that name something.
LOOKING = [
    ["status"],
    ["status", "--chunks"],
    ["status", "--failures"],
    ["audit"],
    ["dead-letters", "list"],
    ["redrives", "list"],
    ["targets", "list"],
    ["rules", "show", "all-orders"],
    ["rules", "check"],
]
IN_AN_HOUR = "retry: {policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, max_delay: 1h}"


@dataclass(frozen=True)
class Parties:
    """The servers delivered to: a receiver, one that asks for the client certificate `ours`, and unused ports."""

    receiver: Receiver
    guarded: Receiver
    ca: certificates.Pair
    ours: certificates.Pair
    locked: bytes  # our private key
    closed: int

    def url(self, kind: str, endpoint: str) -> str:
        """Return where a failure takes place for a kind of connection."""
        if endpoint[0] == "/":
            return (self.guarded if kind == "mutual" else self.receiver).url(endpoint)
        return endpoint.format(closed=self.closed, open=self.receiver.port)


@pytest.fixture
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """The receivers, which write down whole requests elsewhere than the shop is."""
    folder = tmp_path_factory.mktemp("receivers")
    ca = certificates.ca()
    (folder / "ca.pem").write_bytes(ca.certificate)
    own = certificates.vouched_for(ca).write(folder / "own.pem")
    asking = {"certificate": own, "client_ca_certificates": folder / "ca.pem"}
    with (
        Receiver(folder / "open.jsonl", whole=True) as receiver,
        Receiver(folder / "guarded.jsonl", whole=True, **asking) as guarded,
        socket.socket() as taken,
    ):
        taken.bind(("127.0.0.1", 0))  # bound and not listening: no other process can take it meanwhile
        ours = certificates.vouched_for(ca)
        yield Parties(receiver, guarded, ca, ours, ours.private(SECRET), taken.getsockname()[1])


def connections(parties: Parties) -> dict[str, dict[str, Any]]:
    """Return a connection of each kind, as JSON; `secret_url` is still a path, or the beginning of a URL."""
    receiver, ours = parties.receiver, parties.ours
    oauth = {"token_url": receiver.url(f"/token/600/{quote(SECRET, safe='')}"), "scope": "orders"}
    wrong = {"token_url": receiver.url("/token/600/another"), "client_secret_in": "body"}
    mutual = {
        "ca_certificate": parties.ca.certificate.decode(),
        "client_certificate": ours.certificate.decode(),
        "private_key": parties.locked.decode(),
        "private_key_password": SECRET,
    }
    return {
        "basic": {"login": "shop", "password": SECRET},
        "bearer": {"extra": {"token": VISIBLE, "signing_secret": f"whsec_{HMAC}"}},
        "signed": {"extra": {"signing_secret": f"whsk_{ED25519} whsec_{HMAC}"}},
        "mutual": {"extra": mutual},
        "header": {"extra": {"api_key": f"ApiKey {SECRET}", "api_key_header": "authorization"}},
        "query": {"extra": {"api_key": SECRET, "api_key_query": "key"}},
        "oauth": {"login": "shop", "password": SECRET, "extra": oauth},
        "wrong": {"login": "shop", "password": SECRET, "extra": wrong},
        "url": {"extra": {"secret_url": f"/{quote(SECRET, safe='')}?sig={quote(VISIBLE, safe='')}"}},
    }


def queue_of(kind: str, shop: Any, parties: Parties) -> str:
    """Return the dead letter queue of the targets of a kind: a file, the receiver, or one that repeats secrets."""
    if kind == "basic":
        url = parties.receiver.url("/healthy/dead-letters")
        return f'{{type: http, url: "{url}", allow_http: true}}'
    if kind == "query":
        url = parties.receiver.url("/mirror")
        return f'{{type: http, url: "{url}", allow_http: true, connection: bearer-mirror, {NEVER}}}'
    return f"{{type: file, path: {shop.folder}/dead-letters.jsonl}}"


def rules_of(shop: Any, parties: Parties) -> str:
    """Return the targets, one for each connection and failure, whose connections go into the shop's environment."""
    lines = []
    for kind, connection in connections(parties).items():
        for failure, endpoint in FAILURES.items():
            name = f"{kind}-{failure}"
            url = parties.url(kind, endpoint)
            held = json.loads(json.dumps(connection))
            if kind == "url":
                held["extra"]["secret_url"] = url + held["extra"]["secret_url"]
            else:
                held["host"] = "/".join(url.split("/")[:3])
            shop.environ[f"EVENTBRIDGE_CONN_{name.upper()}"] = json.dumps({"conn_type": "http", **held})
            given = "" if kind == "url" else f'url: "{url}/orders", '
            retry = IN_AN_HOUR if failure in ("flaky", "hang", "cut") else NEVER
            timeout = "timeout: 1s" if failure == "hang" else "timeout: 10s"
            fields = f"type: http, {given}allow_http: true, {timeout}, connection: {name}, {retry}"
            fields += ", batch: {count: 2}" if failure == "items" else ""
            lines.append(f"      {name}: {{{fields}, dead_letter_queue: {queue_of(kind, shop, parties)}}}")
    return "\n".join(lines)


def shown(shop: Any, eventbridge: Callable[..., Any]) -> Iterator[tuple[str, bytes]]:
    """Yield what every command that looks prints, for people and for programs; exports stay in the shop's folder."""
    listed = eventbridge("dead-letters", "list", "--json", "--limit", "999").json
    names = {each["target"]: each["name"] for each in listed if each["target"] in SHOWN}
    assert set(names) == SHOWN
    for command in [*LOOKING, *(["dead-letters", "show", name] for name in names.values())]:
        for form in ([], ["--json"]):
            result = eventbridge(*command, *form)
            assert result.code in (0, 1), result.err
            yield " ".join([*command, *form]), (result.out + result.err).encode()
    for file in (str(shop.folder / "dead-letters.parquet"), str(shop.folder / "exported.jsonl"), "-"):
        result = eventbridge("dead-letters", "export", file)
        assert result.code == 0, result.err
        yield f"export {file}", (result.out + result.err).encode()


def key_lines(parties: Parties) -> set[str]:
    """Return the lines of our private key, locked and unlocked, that no other key has."""
    pems = (parties.locked, parties.ours.private())
    return {line for pem in pems for line in pem.decode().splitlines()[1:-1] if len(line) > 20}


def test_no_secret_is_written_anywhere(
    shop: Any,
    eventbridge: Callable[..., Any],
    parties: Parties,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nine kinds of credentials by fourteen failures, one of a batch request's items: nothing written has any."""
    caplog.set_level(logging.DEBUG, logger="eventbridge")
    shop.write_rules(more=rules_of(shop, parties))
    for name, value in shop.environ.items():
        monkeypatch.setenv(name, value)
    eventbridge("events", "publish", "orders", shop.orders(1500))
    shop.deliver()
    redriven = eventbridge("redrives", "start", "--target", "basic-mirror")
    said = ("redrive", (redriven.out + redriven.err).encode())
    printed = [said, *shown(shop, eventbridge)]
    written = [*texts(shop.folder), *printed, ("the log", caplog.text.encode())]

    requests = parties.receiver.requests()
    authorizations = {request["headers"].get("authorization", "") for request in requests}
    secrets = {each.partition(" ")[2] for each in authorizations if each.startswith(("Basic ", "Bearer "))}
    assert len([each for each in secrets if MARK not in each]) >= 3, "no token, or nothing basic, was sent"
    assert [each["path"] for each in parties.guarded.requests() if each["path"].startswith("/mirror")] != []
    signatures = " ".join(each["headers"].get("webhook-signature", "") for each in requests)
    assert "v1a," in signatures
    assert "v1," in signatures
    copies = [each for each in requests if each["path"] == "/healthy/dead-letters"]
    assert len(copies) >= 5
    written += [("a copy for a queue", each["body"]) for each in copies]
    forms = {MARK, HMAC, ED25519, *secrets, *key_lines(parties)}
    found = [(where, each) for where, text in written for each in forms if each.encode() in text]
    assert found == []

    everything = b"\n".join(text for _, text in written)
    expected = [
        "Cannot POST /mirror",
        "*****",
        "AddressRefused",
        "TokenUnavailable",
        "TlsError",
        "HostUnknown",
        "Timeout",
    ]
    expected += ["ConnectionRefused", "invalid_client"]
    assert [each for each in expected if each.encode() not in everything] == []
    assert (shop.folder / "dead-letters.jsonl").stat().st_size > 0


def test_an_unusable_connection_is_reported_without_its_secrets(
    shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The push fails with the connection's name; the chunk's error in the ledger, and the log, have no more."""
    caplog.set_level(logging.DEBUG, logger="eventbridge")
    held = {"conn_type": "http", "host": "crm.example", "login": f"{MARK}:{MARK}", "password": SECRET}
    shop.environ["EVENTBRIDGE_CONN_CRM"] = json.dumps(held)
    shop.write_rules(more='      crm: {type: http, url: "https://crm.example/", connection: crm}')
    eventbridge("events", "publish", "orders", shop.orders(500))
    runtime = open_runtime(Settings.from_mapping(shop.environ), connections_from_environment(shop.environ))
    with closing(runtime):
        deliver_batch(runtime, "orders", InProcessRouter(runtime.store), Stop())
    written = [*texts(shop.folder), ("the log", caplog.text.encode())]

    assert [where for where, text in written if MARK.encode() in text] == []
    reported = [where for where, text in written if b"Connection 'crm' has a login with a colon" in text]
    assert "the log" in reported
    assert any("ledger" in where for where in reported)


def test_the_keys_of_a_bucket_stay_in_their_connection(
    shop: Any,
    eventbridge: Callable[..., Any],
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither the bucket nor the ledger, the log or a command has them, also where the server refuses and names one."""
    caplog.set_level(logging.DEBUG, logger="eventbridge")
    keys = f"{quote(MARK + 'ACCESS', safe='')}:{quote(SECRET, safe='')}"
    where = f"region_name=us-east-1&aws_session_token={MARK}&endpoint_url={quote(s3_server.endpoint, safe='')}"
    shop.environ["EVENTBRIDGE_CONN_LAKE"] = f"aws://{keys}@/?{where}"
    shop.environ["EVENTBRIDGE_STORE_URI"] = f"s3://lake@tests/{uuid.uuid4().hex}"
    shop.write_rules(more=f"      refused: {{type: file, path: {shop.folder}/dead-letters.jsonl/x, {NEVER}}}")
    for name, value in shop.environ.items():
        monkeypatch.setenv(name, value)
    eventbridge("events", "publish", "orders", shop.orders(1500))
    shop.deliver()
    outputs = [eventbridge(*command, *form) for command in LOOKING for form in ([], ["--json"])]
    for code in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        s3_server.refuse = lambda request, code=code: code
        refused = [eventbridge(*command) for command in (["audit"], ["dead-letters", "list"])]
        assert [each.code for each in refused if not each.err] == []
        outputs += refused
    s3_server.refuse = lambda request: None
    store = open_store(shop.environ["EVENTBRIDGE_STORE_URI"], connections_from_environment(shop.environ))
    stored = [part for path in store.list("") for part in texts_of(path, store.get(path))]
    printed = [("a command", (each.out + each.err).encode()) for each in outputs]
    written = [*texts(shop.folder), *stored, *printed, ("the log", caplog.text.encode())]

    assert len(stored) > 8
    assert [name for name, text in written if MARK.encode() in text] == []
    assert MARK in "".join(request.headers.get("HTTP_AUTHORIZATION", "") for request in s3_server.requests)
