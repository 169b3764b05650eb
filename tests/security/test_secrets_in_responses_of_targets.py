"""A target that repeats in its response what it was sent: no credentials are kept, however it writes them."""

from __future__ import annotations

import base64
import html
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from unit.loopback import LOOPBACK, now

from eventbridge.config.connection import Connection
from eventbridge.config.redaction import WITHHELD
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request

LONG, SHORT = "hush/&hush+h", "h/s"

#: How an echo writes a request, and how that is read again.
WRITTEN: Mapping[str, Callable[[str], str]] = {
    "raw": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "url-safe-base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "percent": lambda text: quote(text, safe=""),
    "json": lambda text: json.dumps({"request": text}),
    "html": html.escape,
}


class Echo(BaseHTTPRequestHandler):
    """Responds to a request for a token with that of the path, any other with what it was sent, written as asked."""

    def do_POST(self) -> None:
        """Respond to a request."""
        self.rfile.read(int(self.headers["content-length"]))
        parts = self.path.partition("?")[0].split("/")
        if parts[1] == "token":
            status, said = 200, json.dumps({"access_token": base64.urlsafe_b64decode(parts[2]).decode()})
        else:
            status, said = 400, WRITTEN[parts[1]](f"no such thing: {self.path}\n{self.headers}")
        body = said.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """Return the URL of a server that repeats what it is sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def connections(echo: str, secret: str) -> dict[str, Connection]:
    """Return a connection for each way to prove something, and the secret in it."""

    def made(extra: Mapping[str, object], **fields: str) -> Connection:
        return Connection("crm", "http", extra={"any_host": True, **extra}, **fields)  # type: ignore[arg-type]

    token = base64.urlsafe_b64encode(secret.encode()).decode()
    return {
        "password": made({}, login="shop", password=secret),
        "login": made({}, login=secret),
        "login-with-short-password": made({}, login=secret, password="X"),
        "token": made({"token": secret}),
        "header": made({"api_key": secret}),
        "scheme": made({"api_key": f"ApiKey {secret}", "api_key_header": "authorization"}),
        "query": made({"api_key": secret, "api_key_query": "key"}),
        "oauth2": made({"token_url": f"{echo}/token/{token}"}, login=f"shop-{uuid.uuid4()}", password="hush-hush"),
    }


WAYS = list(connections("", LONG))


def responded(echo: str, way: str, written: str, secret: str) -> bytes:
    """Return what is kept of the response of a target."""
    connection = connections(echo, secret)[way]
    rule = HttpFields(name="crm", url=f"{echo}/{written}/{way}", allow_http=True, connection="crm")
    with closing(open_target("r", rule, lambda _: connection, now, LOOPBACK)) as target:
        request = Request(0, str(uuid.uuid4()), b"{}", "application/json")
        [(_, response)] = target.deliver([request], now() + timedelta(seconds=30))
    assert response.code == 400, response
    return response.response_head


def traces(secret: str, login: str = "") -> list[bytes]:
    """Return what would show a secret: itself, and the middle of it in each base64 that it may be a part of."""
    sent = (secret, quote(secret, safe=""))
    inner = [base64.b64encode(b" " * before + each.encode()).decode()[4:-4] for before in range(3) for each in sent]
    pair = base64.b64encode(f"{login}:{secret}".encode()).decode()
    texts = [secret, pair, *(each for each in inner if len(each) >= 4)]
    ways = list(map(_inside, WRITTEN.values()))
    return [text.encode() for text in texts] + [written(text).encode() for text in texts for written in ways]


def _inside(written: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: written(text).removeprefix('{"request": "').removesuffix('"}')


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("way", WAYS)
def test_a_secret_that_is_repeated_is_masked(echo: str, way: str, written: str) -> None:
    """Asterisks take the place of the secret, and the rest of the response stays."""
    kept = responded(echo, way, written, LONG)

    assert [each for each in traces(LONG, "shop") if each in kept] == []
    if way != "login-with-short-password" or kept != WITHHELD:  # an X stands in other words, too
        assert b"***" in kept
        assert WRITTEN[written]("no such thing: /")[:16].encode() in kept


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("way", WAYS)
def test_a_response_with_a_short_secret_is_withheld(echo: str, way: str, written: str) -> None:
    """A secret of three characters cannot be masked without showing where it stands in other words."""
    kept = responded(echo, way, written, SHORT)

    assert kept == WITHHELD or [each for each in traces(SHORT, "shop") if each in kept] == []


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("path", ["T0000000/hushhushhush", "hushhush?code=h+u+s+h", "h5?code=x"])
def test_a_secret_url_that_is_repeated_is_not_kept(echo: str, written: str, path: str) -> None:
    """Neither the path as a whole nor a part of it that could be the secret, short or long."""
    connection = Connection("crm", "http", extra={"secret_url": f"{echo}/{written}/{path}"})
    rule = HttpFields(name="crm", allow_http=True, connection="crm")
    with closing(open_target("r", rule, lambda _: connection, now, LOOPBACK)) as target:
        request = Request(0, str(uuid.uuid4()), b"{}", "application/json")
        [(_, response)] = target.deliver([request], now() + timedelta(seconds=30))

    assert response.code == 400
    assert b"***" in response.response_head or (path.startswith("h5") and response.response_head == WITHHELD)
    assert [each for each in traces(path) if each in response.response_head] == []
