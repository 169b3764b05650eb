"""Where an HTTP target sends to: a URL that is a secret comes from its connection and is never shown."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from urllib.parse import quote

import pytest
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, now

from eventbridge.config.connection import Connection
from eventbridge.errors import ConnectionUnusable, UserError
from eventbridge.model.outcome import Response
from eventbridge.targets.http.address import address_of, secrets_in
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target

SECRET = "https://hooks.example/services/hunter2"


def target_rule(**fields: object) -> HttpFields:
    return HttpFields.model_validate({"name": "crm", "type": "http", "connection": "hooks", **fields})


def holding(url: object, **fields: object) -> Connection:
    return Connection("hooks", "http", extra={"secret_url": url}, **fields)  # type: ignore[arg-type]


def opened(look_up: Callable[[str], Connection], **fields: object) -> Target:
    return open_target("r", target_rule(allow_http=True, **fields), look_up, now, LOOPBACK)


def response_of(target: Target) -> Response:
    request = Request(0, str(uuid.uuid4()), b"{}", "application/json")
    [(_, response)] = target.deliver([request], now() + timedelta(seconds=30))
    return response


@pytest.mark.parametrize("form", ["uri", "json"])
def test_a_connection_may_hold_the_whole_url(receiver: Receiver, form: str) -> None:
    """Extra `secret_url`, in either form of a connection, is sent to byte for byte; its credentials go along."""
    url = receiver.url(f"/healthy/{form}%2Fhunter2?sig=a%2Bb")
    texts = {
        "uri": f"http://zoe:pw@/?secret_url={quote(url, safe='')}",
        "json": json.dumps({"conn_type": "http", "login": "zoe", "password": "pw", "extra": {"secret_url": url}}),
    }
    with closing(opened(lambda name: Connection.from_text(name, texts[form]))) as target:
        response = response_of(target)

    [request] = [each for each in receiver.requests() if form in each["path"]]
    assert (response.code, receiver.url(request["path"])) == (200, url)
    assert request["headers"]["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    "path", ["/healthy/%2fa/./b/../c?sig=ab%2fcd", "/healthy/..", "/healthy/.?a=/../b", "/healthy//x/"]
)
@pytest.mark.parametrize("secret", [True, False])
def test_a_url_is_sent_byte_for_byte(receiver: Receiver, path: str, secret: bool) -> None:
    """Dot segments, which may be part of what a service signs, stay in the path of a request."""
    url = receiver.url(path)
    held = holding(url) if secret else Connection("hooks", "http", receiver.url(""))
    with closing(opened(lambda _: held, **({} if secret else {"url": url}))) as target:
        response_of(target)

    assert [each["path"] for each in receiver.requests()][-1] == path


def test_a_response_that_repeats_a_secret_url_is_kept_without_it(receiver: Receiver) -> None:
    """`Cannot POST /services/...`, which many servers respond with, would put the secret into the audit record.

    The whole path is masked: T0 may be a secret, too.
    """
    with closing(opened(lambda _: holding(receiver.url("/echo/T0/hunter2hunter2")))) as target:
        response = response_of(target)

    assert (response.code, response.response_head) == (404, b"Cannot POST ***********************\n")


def test_a_response_that_repeats_the_rule_files_url_is_kept_as_it_is(receiver: Receiver) -> None:
    """A url in a rule file is not a secret: readers of a dead letter need the response."""
    held = Connection("hooks", "http", receiver.url(""))
    with closing(opened(lambda _: held, url=receiver.url("/echo/customers"))) as target:
        response = response_of(target)

    assert response.response_head == b"Cannot POST /echo/customers\n"


def test_a_secret_url_that_changes_gets_none_of_the_new_credentials(receiver: Receiver) -> None:
    """After 401 a connection that names another URL is not taken up: its credentials belong to that URL."""
    connections = [
        holding(receiver.url("/guarded/other")),
        Connection("hooks", "http", extra={"secret_url": SECRET, "token": "other"}),
    ]
    with closing(opened(lambda _: connections.pop(0))) as target:
        response = response_of(target)

    assert (response.code, connections) == (401, [])
    requests = [each for each in receiver.requests() if each["path"] == "/guarded/other"]
    assert ["authorization" in each["headers"] for each in requests] == [False]


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        ("http://zoe:hunter2@?any_host=true", "https://x.example:8443/y"),
        ("http://zoe:hunter2@/?signing_secret=a&any_host=TRUE", "http://x.example/y"),
        ("http://zoe:hunter2@crm.example", "https://crm.example/y"),
        ("http://zoe:hunter2@crm.example/http", "http://CRM.example.:80/y"),
        ("http://zoe:hunter2@crm.example:8443", "https://crm.example:8443/y"),
        ("https://zoe:hunter2@crm.example:443", "https://crm.example/y"),
        ("http://https://zoe:hunter2@crm.example", "https://crm.example:443/y"),
        ("http://zoe:hunter2@crm.example/https", "https://crm.example/y"),
        ("http://zoe:hunter2@[::1]:9/http", "http://[::1]:9/y"),
        ('{"conn_type": "http", "host": "https://crm.example:8443/base"}', "https://crm.example:8443/y"),
        ('{"conn_type": "http", "host": "::1"}', "https://[::1]/y"),
    ],
)
def test_credentials_go_to_the_host_of_their_connection(connection: str, url: str) -> None:
    """Scheme, host and port are the connection's; with the extra `any_host` they are those of the rule file."""
    held = Connection.from_text("hooks", connection)

    assert address_of("r", target_rule(url=url, allow_http=True), held) == url


@pytest.mark.parametrize(
    ("connection", "url", "sends_to", "is_for"),
    [
        ("http://zoe:hunter2@crm.example", "https://x.example/y?z", "https://x.example", "https://crm.example"),
        ("http://zoe:hunter2@crm.example", "https://crm.example.x/", "https://crm.example.x", "https://crm.example"),
        (
            "http://zoe:hunter2@crm.example",
            "https://crm.example:8443/",
            "https://crm.example:8443",
            "https://crm.example",
        ),
        (
            "http://zoe:hunter2@crm.example:8443",
            "https://crm.example/",
            "https://crm.example",
            "https://crm.example:8443",
        ),
        ("https://zoe:hunter2@crm.example", "http://crm.example/", "http://crm.example", "https://crm.example"),
        ("http://https://zoe:hunter2@crm.example", "http://crm.example/", "http://crm.example", "https://crm.example"),
        ("http://zoe:hunter2@crm.example/https", "http://crm.example/", "http://crm.example", "https://crm.example"),
        ("http://zoe:hunter2@[::1]", "https://[::2]/", "https://[::2]", "https://[::1]"),
        ("http://sftp://zoe:hunter2@crm.example", "http://crm.example/", "http://crm.example", "sftp://crm.example"),
        (
            '{"conn_type": "http", "host": "https://zoe:hunter2@crm.example/hunter2"}',
            "https://x.example/",
            "https://x.example",
            "https://crm.example",
        ),
    ],
)
def test_credentials_do_not_go_to_another_host(connection: str, url: str, sends_to: str, is_for: str) -> None:
    """A rule file cannot send a connection's secrets elsewhere: the error comes when the target is opened."""
    held = Connection.from_text("hooks", connection)
    with pytest.raises(ConnectionUnusable) as caught:
        open_target("r", target_rule(url=url, allow_http=True), lambda _: held, now)

    reported = (
        f"Connection 'hooks' of type '{held.type}' is for {is_for}, and target 'crm' of rule 'r' sends to {sends_to}."
    )
    assert str(caught.value).startswith(reported)
    assert "hunter2" not in str(caught.value)


def test_a_secret_url_goes_to_the_host_of_its_connection() -> None:
    """The same for a URL that the connection holds, of which only the host is shown."""
    assert address_of("r", target_rule(), holding(SECRET, host="hooks.example")) == SECRET
    with pytest.raises(
        ConnectionUnusable, match=r"is for https://other\.example, and .* sends to https://hooks\.example\."
    ):
        address_of("r", target_rule(), holding(SECRET, host="other.example"))


def test_a_connection_that_moved_to_another_host_is_not_taken_up(receiver: Receiver) -> None:
    """After 401 the credentials of a connection that names another host by now are not sent."""
    connections = [
        Connection("hooks", "http", receiver.url("")),
        Connection("hooks", "http", host="other.example", extra={"token": "moved"}),
    ]
    with closing(opened(lambda _: connections.pop(0), url=receiver.url("/guarded/moved"))) as target:
        response = response_of(target)

    assert (response.code, connections) == (401, [])


@pytest.mark.parametrize("host", ["[hunter2", "https://crm.example:hunter2", "https://", "a:hunter2:b@x"])
def test_a_connections_host_that_cannot_be_read(host: str) -> None:
    """It is refused, never taken for no host, and not shown."""
    with pytest.raises(ConnectionUnusable, match="'hooks': its host cannot be read") as caught:
        address_of("r", target_rule(url="https://x.example/"), Connection("hooks", "http", host=host))

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("connection", "fields", "said"),
    [
        (holding(SECRET), {"url": "https://x.example/"}, "has a url, and its connection 'hooks' has an extra"),
        (Connection("hooks", "http"), {}, "has no url, and its connection 'hooks' has no extra `secret_url`"),
        (holding(5), {}, "its extra `secret_url` is not text"),
        (holding("http://hooks.example/hunter2"), {}, "has an http:// url"),
        (holding("hunter2"), {}, "is not https://host/path, in the extra `secret_url` of its connection 'hooks'"),
        (holding("hunter2://x"), {}, "is not https://host/path, in the extra"),
        (holding("https://a:hunter2@hooks.example/"), {}, "has credentials in its url, in the extra"),
        (holding("https://hooks.example:hunter2/"), {}, "cannot be read"),
        (holding("https://hooks.example/hunter 2"), {}, "space"),
    ],
)
def test_a_url_that_cannot_be_used(connection: Connection, fields: dict[str, object], said: str) -> None:
    """The error names rule, target and connection, and shows nothing of the URL."""
    with pytest.raises(UserError) as caught:
        open_target("r", target_rule(**fields), lambda _: connection, now)

    assert said in str(caught.value)
    assert "'hooks'" in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_a_secret_url_is_no_part_of_what_is_shown() -> None:
    """Neither the text of the connection nor that of what an opened target is made of has it."""
    connection = holding(SECRET)
    with closing(open_target("r", target_rule(), lambda _: connection, now)) as target:
        shown = f"{connection!r} {vars(target)!r}"

    assert address_of("r", target_rule(), connection) == SECRET
    assert "hunter2" not in shown


def test_the_secrets_in_a_url() -> None:
    """The path with the query, and segments and values of six characters or more, as written and unescaped."""
    found = {form.value for form in secrets_in("https://h.example/a/services/x%2Bhunter2?v=1&sig=aa%3Dbb;plain0")}

    pieces = {"services", "x%2Bhunter2", "x+hunter2", "aa%3Dbb", "plain0"}
    assert found == {"/a/services/x%2Bhunter2?v=1&sig=aa%3Dbb;plain0", *pieces}


def test_the_secrets_in_a_short_url() -> None:
    """Every segment and value is one, if none has six characters; a URL without a path has none."""
    assert {form.value for form in secrets_in("https://h.example/a/b2?c=d3")} == {"/a/b2?c=d3", "a", "b2", "d3"}
    assert secrets_in("https://h.example/") == secrets_in("https://h.example") == ()
