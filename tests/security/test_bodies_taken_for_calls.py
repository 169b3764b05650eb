"""Somebody hides a call in the body of another one: the server reads each body to its end, and never as a call."""

from __future__ import annotations

import json
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from api.server import Server

from eventbridge.api.connections import MAX_PIPELINED

HIDDEN = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
SIZED = b"content-length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN
CHUNKED = b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)
LAST = b"GET /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def statuses(server: Server, *segments: bytes) -> list[int]:
    """Return the statuses of all responses to segments, each of which the server receives apart; the last call closes
    the connection.
    """
    parts = urlsplit(server.url)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for segment in segments:
            client.sendall(segment)
        content = b""
        try:
            while part := client.recv(65536):
                content += part
        except ConnectionResetError:
            pass
    return [int(each[:3]) for each in content.split(b"HTTP/1.1 ")[1:]]


def call(body: bytes, *, headers: bytes = UPGRADE, version: bytes = b"1.1") -> bytes:
    """Return a call to a webhook."""
    return b"POST /v1/hooks/code HTTP/%s\r\nhost: x\r\n%s%s" % (version, headers, body)


@pytest.mark.parametrize("body", [SIZED, CHUNKED], ids=["sized", "chunked"])
@pytest.mark.parametrize("headers", [UPGRADE, UPGRADE.replace(b"h2c", b"websocket"), b"Upgrade: TLS/1.0\r\n", b""])
def test_a_body_is_read_whatever_the_call_upgrades_to(server: Server, headers: bytes, body: bytes) -> None:
    """The header Upgrade is ignored (RFC 9110, 7.8), and the call after the body gets its own response."""
    assert statuses(server, call(body, headers=headers) + LAST) == [403, 404]
    assert statuses(server, call(body, headers=headers) * 3 + LAST) == [403, 403, 403, 404]


@pytest.mark.parametrize("body", [SIZED, CHUNKED], ids=["sized", "chunked"])
def test_a_body_is_no_call_wherever_its_segments_end(server: Server, body: bytes) -> None:
    """The head and the body may be cut at every byte."""
    sent = call(body) + LAST
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda at: statuses(server, sent[:at], sent[at:]), range(1, len(sent))))

    assert {at: each for at, each in enumerate(found, 1) if each != [403, 404]} == {}


def test_a_call_that_arrives_byte_by_byte_is_one_call(server: Server) -> None:
    """Each byte is a segment."""
    sent = call(CHUNKED) + LAST

    assert statuses(server, *(sent[at : at + 1] for at in range(len(sent)))) == [403, 404]


def test_an_old_call_that_upgrades_has_a_body(server: Server) -> None:
    """HTTP/1.0 has no Upgrade; the response ends the connection, so nothing after it is read."""
    assert statuses(server, call(SIZED, version=b"1.0") + LAST) == [403]


@pytest.mark.parametrize("path", [b"x:443", b"/v1/hooks/code"])
def test_a_tunnel_is_refused(server: Server, path: bytes) -> None:
    """What follows CONNECT is no call, whether it arrives with it, later, or after another call."""
    tunnel = b"CONNECT %s HTTP/1.1\r\nhost: x\r\n%s" % (path, SIZED)

    assert statuses(server, tunnel) == [400]
    assert statuses(server, tunnel[: -len(HIDDEN)], HIDDEN) == [400]
    assert statuses(server, call(SIZED) + tunnel) == [403]


def test_calls_that_upgrade_count_as_pipelined(server: Server) -> None:
    """Those beyond the limit are refused like others."""
    found = statuses(server, call(SIZED) * 200)

    assert 1 <= len(found) <= MAX_PIPELINED + 1
    assert set(found) == {403}


def test_clients_that_offer_http2_publish_their_data(server: Server, tmp_path: Path) -> None:
    """curl --http2 and the HttpClient of Java offer an upgrade with each call; the event has its data."""
    token = server.installation.token("offers", "publish:orders")
    url = f"{server.url}/v1/buses/orders/events"
    names = {"ce-specversion": "1.0", "ce-id": "offered", "ce-source": "/shop", "ce-type": "t"}
    names |= {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    (tmp_path / "Publish.java").write_text(
        "import java.net.*; import java.net.http.*;\n"
        "class Publish { public static void main(String[] call) throws Exception {\n"
        "  var request = HttpRequest.newBuilder(URI.create(call[0]));\n"
        "  for (int at = 1; at < call.length; at += 2) request.header(call[at], call[at + 1]);\n"
        '  request.POST(HttpRequest.BodyPublishers.ofString("{\\"amount\\":6}"));\n'
        "  var response = HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());\n"
        "  System.out.println(response.body()); } }\n"
    )
    flat = [part for pair in names.items() for part in pair]
    headers = [part for name, value in names.items() for part in ("-H", f"{name}: {value}")]
    commands = [
        ["curl", "-sS", "--http2", "-d", '{"amount":5}', *headers, url],
        ["java", str(tmp_path / "Publish.java"), url, *flat],
    ]

    for command in commands:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert json.loads(result.stdout)["published"] == 1, result.stderr
    stored = [json.loads(body) for body in server.installation.bodies().values()]
    assert sorted(each["data"]["amount"] for each in stored if each["id"] == "offered") == [5, 6]


@pytest.mark.parametrize("name", [b"Authorization", b"ce-subject", b"Content-Encoding", b"Idempotency-Key"])
def test_trailers_are_no_headers(server: Server, name: bytes) -> None:
    """What follows a chunked body, where a proxy checks nothing, changes nothing of the call (RFC 9110, 6.5.1)."""
    token = server.installation.token(f"trailers-{name.decode()}", "publish:orders").encode()
    login = b"Authorization: Bearer %s\r\n" % token
    trailer = login if name == b"Authorization" else name + b": gzip\r\n"
    head = b"POST /v1/buses/orders/events HTTP/1.1\r\nhost: x\r\nce-specversion: 1.0\r\nce-source: /s\r\nce-type: t\r\n"
    head += b"ce-id: trailer-%s\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n" % name
    sent = head + (b"" if name == b"Authorization" else login) + b"\r\n7\r\n" + b'{"a":1}' + b"\r\n0\r\n"

    found = statuses(server, sent, trailer + b"\r\n" + LAST)

    assert found == [401, 404] if name == b"Authorization" else found == [200, 404]
    stored = [json.loads(body) for body in server.installation.bodies().values()]
    assert [each for each in stored if each["id"].startswith("trailer") and "subject" in each] == []


def test_a_body_in_another_transfer_coding_is_refused(server: Server) -> None:
    """It would be stored as it was sent, encoded; both codings that the server reads work."""
    head = b"POST /v1/hooks/code HTTP/1.1\r\nhost: x\r\ntransfer-encoding: %s\r\n\r\n2\r\n{}\r\n0\r\n\r\n"

    assert statuses(server, head % b"gzip, chunked") == [501]
    assert statuses(server, head % b"chunked" + LAST) == statuses(server, head % b"Chunked" + LAST) == [403, 404]


@pytest.mark.parametrize("name", [b"Authorization", b"Idempotency-Key"])
def test_a_header_that_decides_about_a_call_is_sent_once(server: Server, name: bytes) -> None:
    """A proxy may have checked the other one."""
    sent = b"GET /v1/rules HTTP/1.1\r\nhost: x\r\n%s: a\r\n%s: b\r\n\r\n" % (name, name)

    assert statuses(server, sent + LAST)[0] == 400
