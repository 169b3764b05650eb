"""OAuth2 client credentials of an HTTP target: a token is got when it is needed, kept, and got again when refused."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import certificates
import pytest
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, now

from eventbridge.config.connection import Connection
from eventbridge.config.redaction import forms_of, veiled
from eventbridge.errors import ConnectionUnusable
from eventbridge.model.outcome import Response
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.http.tokens import (
    AccessToken,
    AccessTokens,
    TokenClient,
    TokenUnavailable,
    read_token,
    why_refused,
)
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CLIENT = TokenClient("crm", "https://login.example/token", "shop", "hushhush")


def client(url: str, secret: str = "hushhush", **extra: object) -> Connection:
    """Return a connection of its own: no token that another test got is for it."""
    held = {"token_url": url, "any_host": True} | extra
    return Connection("crm", "http", login=f"shop-{uuid.uuid4()}", password=secret, extra=held)


def opened(receiver: Receiver, path: str, connection: Connection, **fields: object) -> Target:
    rule = HttpFields.model_validate(
        {"name": "crm", "type": "http", "url": receiver.url(path), "allow_http": True, "connection": "crm", **fields}
    )
    return open_target("r", rule, lambda _: connection, now, LOOPBACK)


def responses_of(target: Target, number: int = 1, seconds: float = 30.0) -> list[Response]:
    requests = [Request(n, str(uuid.uuid4()), b'{"n":1}', "application/json") for n in range(number)]
    return [response for _, response in target.deliver(requests, now() + timedelta(seconds=seconds))]


def seen(receiver: Receiver, path: str) -> list[dict[str, Any]]:
    return [request for request in receiver.requests() if request["path"] == path]


@pytest.mark.parametrize("secret_in", ["header", "body"])
def test_a_token_is_got_once_and_used_for_all(receiver: Receiver, secret_in: str) -> None:
    """The secret goes to the token endpoint alone, as the connection says; the target gets the token."""
    endpoint, path = f"/token/600/hushhush/{secret_in}", f"/with-token/1000/{secret_in}"
    connection = client(receiver.url(endpoint), client_secret_in=secret_in, scope="orders:write", audience="crm")
    with closing(opened(receiver, path, connection)) as target:
        first = responses_of(target, 20)
    with closing(opened(receiver, path, connection)) as another:
        second = responses_of(another, 20)

    assert {response.code for response in [*first, *second]} == {200}
    [asked] = seen(receiver, endpoint)
    assert asked["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert b"grant_type=client_credentials" in asked["body"]
    assert b"scope=orders%3Awrite&audience=crm" in asked["body"]
    assert ("authorization" in asked["headers"]) == (secret_in == "header")
    assert (b"client_secret=hushhush" in asked["body"]) == (secret_in == "body")
    sent = {request["headers"]["authorization"] for request in seen(receiver, path)}
    assert len(sent) == 1
    assert sent.pop().startswith("Bearer ")


def test_a_client_with_special_characters(receiver: Receiver) -> None:
    """Id and secret are form-encoded before they are basic (RFC 6749, 2.3.1)."""
    connection = client(receiver.url("/token/600/h%C3%BC:sh%2B/x"), "hü:sh+")
    with closing(opened(receiver, "/with-token/9/special", connection)) as target:
        [response] = responses_of(target)

    [asked] = seen(receiver, "/token/600/h%C3%BC:sh%2B/x")
    pair = base64.b64decode(asked["headers"]["authorization"].removeprefix("Basic ")).decode()
    assert pair.endswith(":h%C3%BC%3Ash%2B")
    assert response.code == 200


def test_a_refused_token_is_got_again_once(receiver: Receiver) -> None:
    """Each token is good for 5 requests here: with 8 in flight the rest is sent again with one new token."""
    connection = client(receiver.url("/token/600/hushhush/again"))
    with closing(opened(receiver, "/with-token/5/again", connection, max_in_flight=4)) as target:
        responses = responses_of(target, 8)

    assert [response.code for response in responses] == [200] * 8
    assert len(seen(receiver, "/token/600/hushhush/again")) == 2


def test_a_token_that_is_refused_again_is_the_response(receiver: Receiver) -> None:
    """A request is sent twice at most; the next delivery asks for a token only after it was refused."""
    connection = client(receiver.url("/token/600/hushhush/never"))
    with closing(opened(receiver, "/guarded/never", connection)) as target:
        responses = responses_of(target, 3)

    assert [response.code for response in responses] == [401] * 3
    assert len(seen(receiver, "/guarded/never")) == 6
    assert len(seen(receiver, "/token/600/hushhush/never")) == 2


def test_other_requests_have_their_response_before_a_token_is_got_again(receiver: Receiver) -> None:
    """What is in flight does not wait for a token endpoint that hangs: its own time would go by meanwhile."""
    hanging = {"token_url": receiver.url("/hang/token")}
    connections = [client(receiver.url("/token/600/hushhush/slow")), client(receiver.url("/hang"), **hanging)]
    rule = HttpFields(
        name="crm",
        url=receiver.url("/with-token/2/slow"),
        allow_http=True,
        connection="crm",
        timeout_seconds=1.0,
        max_in_flight=4,
    )
    look_up = lambda _: connections.pop(0) if len(connections) > 1 else connections[0]  # noqa: E731
    with closing(open_target("r", rule, look_up, now, LOOPBACK)) as target:
        responses = responses_of(target, 4)

    assert sorted(str(response.code) for response in responses) == ["200", "200", "401", "401"]
    assert all("Timeout" in (response.error or "") for response in responses if response.code == 401)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "/token/600/other",
            "HTTP 401, invalid_client: the client secret ******** is wrong. Check the connection",
        ),
        ("/status/500", "HTTP 500."),
        ("/redirect/x", "HTTP 302."),
        ("/healthy", "did not respond with JSON"),
        ("/hang", "Timeout: "),
        ("/drip", "Timeout: "),
        ("/cut", "NetworkError: "),
        ("/huge", "did not respond with JSON"),
    ],
)
def test_a_token_endpoint_that_gives_none(receiver: Receiver, path: str, said: str) -> None:
    """Nothing is sent to the target; every delivery is to be tried again, with the reason; it is asked once."""
    connection = client(receiver.url(path))
    with closing(opened(receiver, "/with-token/9/none", connection, timeout_seconds=1.0)) as target:
        responses = responses_of(target, 5)

    assert {(response.accepted, response.code, response.error_class) for response in responses} == {
        (False, None, "TokenUnavailable")
    }
    [error] = {response.error for response in responses}
    assert error is not None
    assert error.startswith(f"http://127.0.0.1:{receiver.port} (token_url of connection 'crm') ")
    assert said in error
    assert "hush" not in error
    assert seen(receiver, "/with-token/9/none") == []


def test_a_token_endpoint_inside_is_refused(receiver: Receiver) -> None:
    """SSRF protection is that of the target: a connection's token_url leads nowhere else."""
    rule = HttpFields(name="crm", url="https://crm.example/", allow_http=True, connection="crm")
    with closing(open_target("r", rule, lambda _: client(receiver.url("/token/9/x/inside")), now)) as target:
        [response] = responses_of(target)

    assert response.error_class == "TokenUnavailable"
    assert "AddressRefused: 127.0.0.1 is a loopback address" in (response.error or "")
    assert seen(receiver, "/token/9/x/inside") == []


#: Asks a target whose token endpoint has a name.
_ASK = """
import time
from datetime import UTC, datetime, timedelta
from eventbridge.config.connection import Connection
from eventbridge.rules import Target
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request
from eventbridge.targets.http.fields import HttpFields

connection = Connection("crm", "http", "crm.example", login="shop", password="hushhush", extra={"token_url": "https://login/"})
rule = HttpFields(name="crm", url="https://crm.example/", connection="crm", timeout_seconds=1.0)
now = lambda: datetime.now(UTC)
target = open_target("r", rule, lambda _: connection, now)
[(_, response)] = target.deliver([Request(0, "1", b"{}", "application/json")], now() + timedelta(seconds=15))
print(response.error_class, response.error, flush=True)
"""


def test_a_name_that_cannot_be_looked_up_costs_the_time_out(tmp_path: Path) -> None:
    """What looks up a token endpoint's name for ever is left at it when the target's timeout of 1 s is over.

    The resolver's file of aliases, which it reads first for a name without dots, is a pipe without a writer.
    """
    os.mkfifo(tmp_path / "aliases")
    environ = os.environ | {"HOSTALIASES": str(tmp_path / "aliases")}

    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, env=environ, timeout=30)

    assert "TokenUnavailable" in done.stdout
    assert "Timeout" in done.stdout, done.stderr


def test_a_token_endpoint_is_verified_as_its_target_is(tmp_path: Path) -> None:
    """The connection's CA certificate counts for both; without it the secret does not leave."""
    own = certificates.self_signed()
    with Receiver(tmp_path / "log.jsonl", certificate=own.write(tmp_path / "own.pem")) as receiver:
        unknown = client(receiver.url("/token/600/hushhush"))
        known = client(receiver.url("/token/600/hushhush"), ca_certificate=own.certificate.decode())
        found = []
        for connection in (unknown, known):
            with closing(opened(receiver, "/with-token/9/tls", connection, allow_http=False)) as target:
                found += responses_of(target)

    assert [(response.code, response.error_class) for response in found] == [(None, "TokenUnavailable"), (200, None)]
    assert "TlsError" in (found[0].error or "")


def test_a_token_endpoint_without_tls_must_be_allowed() -> None:
    """The secret would go in the clear; the error comes before anything is sent."""
    rule = HttpFields(name="crm", url="https://crm.example/", connection="crm")
    with pytest.raises(ConnectionUnusable, match="`token_url` is http:, which anyone on the network path can read"):
        open_target("r", rule, lambda _: client("http://login.example/token"), now)


def test_no_time_left_is_reported(receiver: Receiver) -> None:
    """A hanging endpoint takes the time that is left, and no more."""
    connection = client(receiver.url("/hang/late"))
    began = time.monotonic()
    with closing(opened(receiver, "/with-token/9/late", connection)) as target:
        responses_of(target, 3, seconds=0.5)

    assert time.monotonic() - began < 5


def ticket(text: str, seconds: float = 600) -> Callable[[float], AccessToken]:
    return lambda _: AccessToken(text, seconds)


def refuse(_: float) -> AccessToken:
    raise TokenUnavailable("nothing today")


@pytest.mark.parametrize(("seconds", "until_seconds"), [(600, 539), (30, 23.9)])
def test_a_token_is_kept_until_shortly_before_its_end(seconds: float, until_seconds: float) -> None:
    """A minute before it, and of a short life its last fifth; then another is got."""
    tokens = AccessTokens()
    at = [NOON, NOON + timedelta(seconds=until_seconds), NOON + timedelta(seconds=until_seconds + 2)]

    got = [
        tokens.token(CLIENT, ticket(f"t{n}", seconds), each, each + timedelta(seconds=9)) for n, each in enumerate(at)
    ]

    assert got == ["t0", "t0", "t2"]


def test_a_refused_token_is_not_given_again() -> None:
    """Another token that a concurrent request has got is used."""
    tokens = AccessTokens()
    until = NOON + timedelta(seconds=9)
    first = tokens.token(CLIENT, ticket("t0"), NOON, until)
    second = tokens.token(CLIENT, ticket("t1"), NOON, until, refused=first)
    third = tokens.token(CLIENT, refuse, NOON, until, refused=first)

    assert (first, second, third) == ("t0", "t1", "t1")


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_an_endpoint_is_asked_again_after_as_long_as_it_took_to_fail(seconds: float) -> None:
    """A failure that took 10 s counts for 10 s more, and one that came at once not at all."""
    passed, asked = [100.0], [0]
    tokens = AccessTokens(lambda: passed[0])

    def fail(_: float) -> AccessToken:
        asked[0] += 1
        passed[0] += seconds
        raise TokenUnavailable(f"failure {asked[0]}")

    def failure() -> str:
        with pytest.raises(TokenUnavailable) as caught:
            tokens.token(CLIENT, fail, NOON, NOON + timedelta(seconds=9))
        return str(caught.value)

    first = failure()
    passed[0] += 0.9 * seconds
    second = failure()
    passed[0] += 0.2 * seconds
    third = failure()

    assert (first, second, third) == (
        ("failure 1", "failure 1", "failure 2") if seconds else ("failure 1", "failure 2", "failure 3")
    )


@pytest.mark.parametrize("result", ["t0", None])
def test_threads_that_wait_for_one_token_ask_once(result: str | None) -> None:
    """20 threads: one asks; whether it gets a token or none counts for all that waited."""
    tokens = AccessTokens()
    asked, go_on = threading.Event(), threading.Event()
    count: list[int] = []
    got: list[str] = []

    def ask(_: float) -> AccessToken:
        count.append(1)
        asked.set()
        assert go_on.wait(30)
        return AccessToken(result, 600) if result else refuse(0)

    def want() -> None:
        try:
            got.append(tokens.token(CLIENT, ask, NOON, NOON + timedelta(seconds=60)))
        except TokenUnavailable as error:
            got.append(str(error))

    threads = [threading.Thread(target=want) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert asked.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)

    assert got == [result or "nothing today"] * 20
    assert len(count) == 1 or result is None  # a thread that came after a failure asks again


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ("hush", "not respond with JSON"),
        ('["hush"]', "no usable access_token"),
        ('{"token": "hush"}', "no usable access_token"),
        ('{"access_token": ""}', "no usable access_token"),
        ('{"access_token": "hush hush"}', "no usable access_token"),
        ('{"access_token": "hush\\r\\nevil: 1"}', "no usable access_token"),
        ('{"access_token": "hush", "token_type": "mac"}', "not a bearer token"),
        (json.dumps({"access_token": "hush" * 2_049}), "8,196 characters; the limit is 8,192"),
    ],
)
def test_a_response_without_a_token(response: str, said: str) -> None:
    """The error names the endpoint and the connection, and shows nothing of the response."""
    with pytest.raises(TokenUnavailable) as caught:
        read_token(CLIENT, response.encode())

    assert str(caught.value).startswith("https://login.example (token_url of connection 'crm') ")
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (3600, 3600),
        ("60", 60),
        (None, 300),
        ("soon", 300),
        (-5, 300),
        (0, 300),
        (1e12, 86_400),
        (True, 1),
        pytest.param(10**400, 300, id="no float"),
    ],
)
def test_how_long_a_token_is_good(said: object, seconds: float) -> None:
    """`expires_in` counts where it makes sense, up to a day; 5 minutes where it is not there."""
    assert read_token(CLIENT, json.dumps({"access_token": "t", "expires_in": said}).encode()).seconds == seconds


def test_the_text_of_a_refusal_is_bounded() -> None:
    """Error and description of RFC 6749, on one line and not without end; nothing where there is no such JSON."""
    refusal = {"error": "invalid_scope", "error_description": "no\n such  scope"}
    reason = why_refused(json.dumps(refusal).encode(), bytes)
    long = why_refused(json.dumps({"error": "e" * 5000}).encode(), bytes)

    assert (reason, len(long)) == ("invalid_scope: no such scope", 200)
    assert [why_refused(each, bytes) for each in (b"<html>", b"[1]", b"{}", b'{"error": 5}')] == [""] * 4


def test_a_refusal_shows_no_secret_and_no_piece_of_one() -> None:
    """Neither one that JSON escapes hide from a reader of the bytes, nor the beginning of one where the text is cut."""

    def veil(text: bytes) -> bytes:
        return veiled(text, forms_of(["hushhush"]))

    hidden = why_refused(rb'{"error": "\u0068ushhush"}', veil)
    halved = why_refused(json.dumps({"error": "e" * 195 + "hushhush"}).encode(), veil)

    assert hidden == "********"
    assert halved == "e" * 195 + "*****"
