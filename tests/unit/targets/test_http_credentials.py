"""What of a connection an HTTP target uses: basic, bearer, signing secrets; renewed once after 401."""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing

import pytest
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, later, now

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.rules.model import as_target
from eventbridge.targets.http.credentials import credentials_of
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target


def connection(extra: Mapping[str, object] | None = None, **fields: str) -> Connection:
    return Connection("crm", "http", extra={"any_host": True, **(extra or {})}, **fields)  # type: ignore[arg-type]


def target_of(url: str, connections: Callable[[str], Connection], **fields: object) -> Target:
    rule = HttpFields(name="crm", url=url, allow_http=True, connection="crm", **fields)  # type: ignore[arg-type]
    return open_target("r", rule, connections, now, LOOPBACK)


def codes(target: Target, number: int = 1) -> list[int | None]:
    requests = [Request(n, str(uuid.uuid4()), b'{"n":1}', "application/json") for n in range(number)]
    return [response.code for _, response in target.deliver(requests, later())]


def headers_of(receiver: Receiver, path: str) -> list[dict[str, str]]:
    return [request["headers"] for request in receiver.requests() if request["path"] == path]


def successive_responses(*connections: Connection) -> tuple[Callable[[str], Connection], list[str]]:
    """Return a look-up that gives the connections one by one, the last one forever, and the names asked for."""
    left = list(connections)
    asked: list[str] = []

    def look_up(connection_id: str) -> Connection:
        asked.append(connection_id)
        return left.pop(0) if len(left) > 1 else left[0]

    return look_up, asked


def test_login_and_password_are_sent_as_basic(receiver: Receiver) -> None:
    """RFC 7617, with UTF-8 and a colon in the password."""
    with closing(
        target_of(receiver.url("/healthy/basic"), lambda _: connection(login="zoë", password="a:b"))
    ) as target:
        codes(target)

    [headers] = headers_of(receiver, "/healthy/basic")
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode() == "zoë:a:b"
    assert "webhook-signature" not in headers


def test_a_token_is_sent_as_bearer_and_secrets_sign(receiver: Receiver) -> None:
    """Extra `token` goes into `authorization`; `signing_secret` signs id, timestamp and payload."""
    extra = {"token": "t0p", "signing_secret": "whsec_" + base64.b64encode(b"k" * 24).decode()}
    with closing(target_of(receiver.url("/healthy/bearer"), lambda _: connection(extra))) as target:
        codes(target)

    [headers] = headers_of(receiver, "/healthy/bearer")
    message = f'{headers["webhook-id"]}.{headers["webhook-timestamp"]}.{{"n":1}}'.encode()
    signature = base64.b64encode(hmac.new(b"k" * 24, message, hashlib.sha256).digest()).decode()
    assert headers["authorization"] == "Bearer t0p"
    assert headers["webhook-signature"] == f"v1,{signature}"


@pytest.mark.parametrize(
    ("extra", "name", "value"),
    [
        ({}, "x-api-key", "k3y/+=&?"),
        ({"api_key_header": "X-Shop-Key"}, "x-shop-key", "k3y/+=&?"),
        ({"api_key_header": "Authorization", "api_key": "ApiKey k3y"}, "authorization", "ApiKey k3y"),
    ],
)
def test_an_api_key_is_sent_in_a_header(receiver: Receiver, extra: dict[str, str], name: str, value: str) -> None:
    """In `x-api-key`, or the header that the connection names."""
    path = f"/healthy/key/{uuid.uuid4()}"
    with closing(target_of(receiver.url(path), lambda _: connection({"api_key": "k3y/+=&?"} | extra))) as target:
        codes(target)

    [headers] = headers_of(receiver, path)
    assert headers[name] == value


@pytest.mark.parametrize(
    ("url", "sent"), [("/healthy/q", "/healthy/q?k%20y="), ("/healthy/q?a=1", "/healthy/q?a=1&k%20y=")]
)
def test_an_api_key_is_sent_in_the_query(receiver: Receiver, url: str, sent: str) -> None:
    """Behind what the URL has, escaped; another URL of the same target never has it."""
    extra = {"api_key": "k3y/+=&?", "api_key_query": "k y"}
    with closing(target_of(receiver.url(url), lambda _: connection(extra))) as target:
        codes(target, 2)

    got = [request["path"] for request in receiver.requests() if request["path"].startswith(sent)]
    assert got == [f"{sent}k3y%2F%2B%3D%26%3F"] * 2


def test_a_new_api_key_in_the_query_replaces_the_old_one(receiver: Receiver) -> None:
    """After 401 the URL is rebuilt: the old key is in it no more."""
    extra = {"api_key_query": "key"}
    look_up, _ = successive_responses(
        connection(extra | {"api_key": "old-key"}), connection(extra | {"api_key": "new-key"})
    )
    with closing(target_of(receiver.url("/status/401"), look_up, max_in_flight=1)) as target:
        codes(target, 2)

    got = [request["path"].partition("=")[2] for request in receiver.requests() if "/status/401" in request["path"]]
    assert got == ["old-key", "new-key", "new-key"]


def test_a_response_that_repeats_a_secret_is_kept_without_it(receiver: Receiver) -> None:
    """An error page that shows headers and URL shows asterisks for credentials, escaped or not, and the rest."""
    held = {
        "basic": connection(login="shop", password="hush/&hush"),
        "token": connection({"token": "hush.hush.hush"}),
        "header": connection({"api_key": "ApiKey hush-hush", "api_key_header": "authorization"}),
        "query": connection({"api_key": "hush/&hush", "api_key_query": "key"}),
    }
    for name, each in held.items():
        with closing(target_of(receiver.url(f"/mirror/{name}"), lambda _, each=each: each)) as target:  # type: ignore[misc]
            [(_, response)] = target.deliver([Request(0, str(uuid.uuid4()), b"{}", "application/json")], later())

        assert response.response_head.startswith(f"Cannot POST /mirror/{name}".encode())
        assert b"webhook-id: " in response.response_head
        assert b"***" in response.response_head
        assert b"hush" not in response.response_head
        assert base64.b64encode(b"shop:hush/&hush") not in response.response_head


def test_after_401_new_credentials_are_used_once(receiver: Receiver) -> None:
    """A token that was renewed meanwhile: the request is sent once more with it, and the next ones at once."""
    look_up, asked = successive_responses(connection({"token": "old"}), connection({"token": "new"}))
    with closing(target_of(receiver.url("/guarded/new"), look_up, max_in_flight=1)) as target:
        [(_, first)] = target.deliver([Request(0, str(uuid.uuid4()), b"{}", "application/json")], later())
        second = codes(target, 3)

    assert (first.code, first.response_head, second) == (200, b"ok\n", [200, 200, 200])
    assert asked == ["crm", "crm"]
    got = [headers["authorization"] for headers in headers_of(receiver, "/guarded/new")]
    assert got == ["Bearer old"] + ["Bearer new"] * 4


def test_many_in_flight_share_one_question(receiver: Receiver) -> None:
    """20 requests that meet 401 together ask for the connection once; each is sent once more."""
    look_up, asked = successive_responses(connection({"token": "old"}), connection({"token": "shared"}))
    with closing(target_of(receiver.url("/guarded/shared"), look_up, max_in_flight=20)) as target:
        responded = codes(target, 20)

    assert responded == [200] * 20
    assert asked == ["crm", "crm"]
    assert len(headers_of(receiver, "/guarded/shared")) == 40


def test_after_401_the_same_credentials_are_not_sent_again(receiver: Receiver) -> None:
    """Nothing changed: 401 is the response, for every request, and the connection is asked once per delivery."""
    look_up, asked = successive_responses(connection({"token": "old"}))
    with closing(target_of(receiver.url("/guarded/never"), look_up)) as target:
        responded = codes(target, 5)
        asked_first = len(asked)
        responded_later = codes(target, 2)

    assert (responded, responded_later) == ([401] * 5, [401] * 2)
    assert (asked_first, len(asked)) == (2, 3)
    assert len(headers_of(receiver, "/guarded/never")) == 7


def test_new_credentials_that_fail_too_are_the_response(receiver: Receiver) -> None:
    """A request is sent twice at most."""
    look_up, _ = successive_responses(connection({"token": "old"}), connection({"token": "newer"}))
    with closing(target_of(receiver.url("/guarded/newest"), look_up)) as target:
        responded = codes(target)

    assert responded == [401]
    assert len(headers_of(receiver, "/guarded/newest")) == 2


def test_a_connection_that_went_away_changes_nothing(receiver: Receiver) -> None:
    """If the connection cannot be read again, 401 is the response, and nothing is raised."""
    asked = []

    def look_up(connection_id: str) -> Connection:
        asked.append(connection_id)
        if len(asked) > 1:
            raise ConnectionUnusable("Connection 'crm' is not defined.")
        return connection({"token": "old"})

    with closing(target_of(receiver.url("/guarded/gone"), look_up)) as target:
        responded = codes(target)

    assert responded == [401]
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("unusable", "part"),
    [
        (connection({"token": "hush"}, login="zoe"), "Keep one"),
        (connection({"token": "hush hush"}), "space"),
        (connection({"token": "hush\r\nevil: 1"}), "control"),
        (connection({"token": 5}), "not text"),
        (connection(password="hush"), "no login"),
        (connection(login="a:hush"), "colon"),
        (connection({"signing_secret": "hush"}), "whsec_"),
        (connection({"token": "hush", "api_key": "hush"}), "Keep one"),
        (connection({"api_key": "hush"}, login="zoe"), "Keep one"),
        (connection({"api_key": "hush", "api_key_header": "a", "api_key_query": "b"}), "Keep one"),
        (connection({"api_key": "hush", "api_key_header": "host"}), "is reserved"),
        (connection({"api_key": "hush", "api_key_header": "Webhook-Id"}), "is reserved"),
        (connection({"api_key": "hush", "api_key_header": "a b"}), "not a header name"),
        (connection({"api_key": "hush\r\nevil: 1"}), "line break"),
        (connection({"api_key_query": "hush"}), "no `api_key`"),
        (connection({"signing_secrets": "hush"}), "Write `signing_secret`"),
        (connection({"apikey": "hush"}), "Write `api_key`"),
        (connection({"Token": "hush"}), "Write `token`"),
        (connection({"scope": "hush"}), "no `token_url`"),
        (connection({"token_url": "https://x.example/hush"}), "client id"),
        (connection({"token_url": "https://x.example/hush"}, login="a"), "client secret"),
        (connection({"token_url": "hush"}, login="a", password="b"), "not https://host/path"),
        (connection({"token_url": "https://a:hush@x.example/"}, login="a", password="b"), "contains a login"),
        (connection({"token_url": "https://x.example:hush/"}, login="a", password="b"), "not https://host/path"),
        (
            connection({"token_url": "https://x.example/", "client_secret_in": "hush"}, login="a", password="b"),
            "neither header nor body",
        ),
    ],
)
def test_a_connection_that_cannot_be_used(unusable: Connection, part: str) -> None:
    """The error names the connection and what is wrong, and shows no value."""
    with pytest.raises(ConnectionUnusable) as caught:
        credentials_of(unusable)

    assert "'crm'" in str(caught.value)
    assert part in str(caught.value)
    assert "hush" not in str(caught.value)


def test_an_extra_of_another_program_is_left_alone() -> None:
    """A connection may serve other programs too."""
    found = credentials_of(connection({"verify": False, "headers": {"a": "b"}, "timeout": 5, "token": "t0p"}))

    assert found.lines == ("authorization: Bearer t0p",)


def test_credentials_never_show() -> None:
    """A credential that is printed by mistake shows nothing."""
    text = repr(credentials_of(connection({"token": "hush", "signing_secret": "whsec_aHVzaA=="})))

    assert "hush" not in text


def test_a_connection_that_is_not_defined_is_reported_when_the_target_is_opened() -> None:
    """Opening asks for the connection: its error comes before anything is sent."""

    def look_up(connection_id: str) -> Connection:
        raise ConnectionUnusable(f"Connection {connection_id!r} is not defined.")

    with pytest.raises(ConnectionUnusable, match="'crm'"):
        target_of("https://crm.example/", look_up)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"url": "http://crm.example/"}, "allow_http"),
        ({"url": "ftp://crm.example/"}, "not https"),
        ({"url": "https:///path"}, "not https"),
        ({"url": ""}, "not https"),
        ({"url": "https://zoe:hush@crm.example/"}, "connection"),
        ({"url": "https://crm.example/a b"}, "space"),
        ({"url": "https://crm.example/\r\nevil: 1"}, "control"),
        ({"url": "https://crm.example:99999/"}, "cannot be read"),
        ({"url": "https://[::1/"}, "cannot be read"),
        ({"url": "https://bücher.example/"}, "xn--"),
        ({"type": "file", "path": ""}, "no path"),
        ({"type": "file", "path": "out.jsonl", "content_mode": "binary"}, "content_mode"),
    ],
)
def test_a_target_that_cannot_be_used(fields: dict[str, str], part: str) -> None:
    """The error names rule and target and says what to do; credentials in a url are not shown."""
    rule = as_target({"name": "crm", "type": "http", **fields})
    with pytest.raises(UserError) as caught:
        open_target("big-orders", rule, lambda _: connection(), now)

    assert "'crm'" in str(caught.value)
    assert "'big-orders'" in str(caught.value)
    assert part in str(caught.value)
    assert "hush" not in str(caught.value)
