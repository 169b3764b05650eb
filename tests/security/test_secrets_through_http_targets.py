"""A rule author sends the secrets of a connection somewhere: each way in is refused before anything is sent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from demo.receiver import ADDRESSES, Receiver
from unit.loopback import LOOPBACK, later, now

from eventbridge.clients.kafka.client import client_settings as kafka_settings
from eventbridge.clients.rocketmq.settings import client_settings as rocketmq_settings
from eventbridge.clients.s3.access import S3Access
from eventbridge.config.connection import Connection, connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.control.try_target import check_target, send_event
from eventbridge.errors import ConnectionUnusable
from eventbridge.model.outcome import Response
from eventbridge.rules.model import queue_of
from eventbridge.runtime.open import open_runtime
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request

#: Connections for everything but an http target, each with a secret that one would have sent.
OTHERS = {
    "aws": "aws://AKIA:hunter2@/?region_name=eu-central-1",
    "eventbridge_store": "eventbridge-store://AKIA:hunter2@",
    "google_cloud_platform": "google-cloud-platform://?token=hunter2",
    "kafka": "kafka://shop:hunter2@127.0.0.1",
    "rocketmq": "rocketmq://shop:hunter2@127.0.0.1",
    "postgres": "postgres://shop:hunter2@127.0.0.1",
    "spark_connect": "spark-connect://:hunter2@127.0.0.1",
    "eventbridge_bus": "eventbridge-bus://shop:hunter2@127.0.0.1",
    "ssh": "ssh://shop:hunter2@127.0.0.1",
    "": '{"conn_type": "", "login": "shop", "password": "hunter2"}',
}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """Run a receiver on this machine that keeps what it is sent, whole."""
    with Receiver(tmp_path / "log.jsonl", whole=True) as running:
        yield running


def sent(held: Connection, **fields: Any) -> Response:
    """Return the response to one delivery by an http target with that connection."""
    rule = HttpFields.model_validate({"name": "crm", "connection": held.id, "allow_http": True, **fields})
    with closing(open_target("leak", rule, lambda _: held, now, LOOPBACK)) as target:
        [(_, response)] = target.deliver([Request(0, str(uuid.uuid4()), b"{}", "application/json")], later())
    return response


@pytest.mark.parametrize("kind", OTHERS)
def test_a_connection_of_another_type_sends_nothing(receiver: Receiver, kind: str) -> None:
    """An http target refuses every type but its own, in words that name connection, type and remedy."""
    held = Connection.from_text("store", OTHERS[kind])
    url = receiver.url("/healthy/other-type")

    with pytest.raises(ConnectionUnusable) as caught:
        sent(held, url=url)

    reported = str(caught.value)
    assert f"Connection 'store' is of type {kind!r}" in reported
    assert "target 'crm' of rule 'leak'" in reported
    assert "http, https or eventbridge_target" in reported
    assert "hunter2" not in reported
    assert receiver.requests() == []


@pytest.mark.parametrize(
    "held",
    [
        {"login": "zoe", "password": "hunter2"},
        {"extra": {"token": "hunter2"}},
        {"extra": {"api_key": "hunter2"}},
        {"extra": {"signing_secret": "whsec_aHVudGVyMmh1bnRlcjJodW50ZXIy"}},
        {"login": "zoe", "password": "hunter2", "extra": {"token_url": "https://login.example/"}},
        {"extra": {"token": "hunter2", "any_host": False}},
        {"extra": {"token": "hunter2", "any_host": "false"}},
    ],
)
def test_a_connection_without_a_host_sends_nothing(receiver: Receiver, held: dict[str, Any]) -> None:
    """A connection that names no host is for no host, whatever it holds."""
    with pytest.raises(ConnectionUnusable, match="Connection 'crm' of type 'http' names no host") as caught:
        sent(Connection("crm", "http", **held), url=receiver.url("/healthy/no-host"))

    assert f"host {receiver.url('/').rstrip('/')}" in str(caught.value)
    assert "any_host" in str(caught.value)
    assert receiver.requests() == []


@pytest.mark.parametrize("any_host", [True, "true"])
def test_a_connection_for_any_host_says_so(receiver: Receiver, any_host: object) -> None:
    """A connection that rule files may use with every host sets its extra `any_host`."""
    response = sent(
        Connection("crm", "http", extra={"token": "hunter2", "any_host": any_host}), url=receiver.url("/healthy/any")
    )

    assert response.code == 200
    [request] = receiver.requests()
    assert request["headers"]["authorization"] == "Bearer hunter2"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"host": "https://crm.example", "extra": {"any_host": True}}, "a host and an extra `any_host`"),
        ({"extra": {"any_host": True, "secret_url": "https://crm.example/"}}, "`secret_url` and an extra `any_host`"),
        ({"extra": {"any_host": "yes"}}, "an extra `any_host` that is neither true nor false"),
        ({"extra": {"any_host": 1}}, "an extra `any_host` that is neither true nor false"),
    ],
)
def test_any_host_beside_a_host_is_an_error(fields: dict[str, Any], said: str) -> None:
    """A connection is for one host or for all; what says both is refused."""
    url = None if "secret_url" in fields["extra"] else "https://crm.example/"
    with pytest.raises(ConnectionUnusable, match=said):
        sent(Connection("crm", "http", **fields), **({"url": url} if url else {}))


@pytest.mark.parametrize(
    "url",
    [
        "http://crm.example/",  # readable on the way
        "http://crm.example:443/",
        "https://crm.example:8443/",
        "https://crm.example.evil.example/",
        "https://evil.example/crm.example",
        "https://evil.example/?crm.example",
        "https://crm.example@evil.example/",
        "https://crm.example:443@evil.example/",
        "https://crm.example%2eevil.example/",
        "https://crm.example%00.evil.example/",
        "https://evil.example\\@crm.example/",
        "https://evil.example\\.crm.example/",
        "https://evil.example;@crm.example/",
        "https://[crm.example]/",
        "https://[crm.example]evil.example/",
        "https://[crm.example].evil.example:443/",
        "https://crm.example[::1]/",
        "https://crm.example:443:80/",
        "https:///crm.example/",
        "https:/crm.example/",
        "https:crm.example",
        "\thttps://crm.example/",
        "https://crm.exam\tple/",
        "https://crm.example\n.evil.example/",
        "https://\u212arm.example/",
        "https://crm\u3002example/",
        "ftp://crm.example/",
        "gopher://crm.example/",
        "file:///etc/passwd",
        "",
    ],
)
def test_another_spelling_of_the_host_sends_nothing(url: str) -> None:
    """Only the scheme, host and port that the connection names are sent to, however a URL is written."""
    held = Connection("crm", "https", "crm.example", login="zoe", password="hunter2")
    rule = HttpFields(name="crm", connection="crm", allow_http=True, url=url)

    with pytest.raises(Exception, match="rule 'leak'") as caught:
        open_target("leak", rule, lambda _: held, now, LOOPBACK)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://crm.example/", "HTTPS://CRM.example.:443/x", "https://crm.example?x", "https://crm.example:0443/"]
)
def test_the_same_host_in_another_case_is_sent_to(url: str) -> None:
    """Letter case, a last dot and the usual port are no difference."""
    held = Connection("crm", "http", "crm.example", login="zoe", password="hunter2")

    open_target("leak", HttpFields(name="crm", connection="crm", url=url), lambda _: held, now, LOOPBACK).close()


def test_a_connection_that_names_no_scheme_is_for_https(receiver: Receiver) -> None:
    """`allow_http: true` in a rule file does not send a login in clear text: the connection has to say http://."""
    host, _, port = receiver.url("").removeprefix("http://").partition(":")
    held = Connection("crm", "http", host, int(port), login="zoe", password="hunter2")

    with pytest.raises(ConnectionUnusable, match=f"is for https://{host}:{port}"):
        sent(held, url=receiver.url("/healthy/clear"))
    assert receiver.requests() == []


def test_a_redirect_takes_nothing_along(receiver: Receiver) -> None:
    """A 3xx is a response: where it leads is never asked, so no credential reaches another host by it."""
    held = Connection("crm", "http", receiver.url(""), login="zoe", password="hunter2")

    response = sent(held, url=receiver.url("/redirect/elsewhere"))

    assert response.code == 302
    assert [each["path"] for each in receiver.requests()] == ["/redirect/elsewhere"]


def test_the_connection_to_airflow_is_not_for_targets(receiver: Receiver) -> None:
    """The product's own account at Airflow's API is of type http, and no rule file may act with it."""
    held = Connection("eventbridge_airflow", "http", receiver.url(""), login="admin", password="hunter2")

    with pytest.raises(ConnectionUnusable, match="'eventbridge_airflow' is EventBridge's own"):
        sent(held, url=receiver.url("/healthy/airflow"))
    assert receiver.requests() == []


@pytest.mark.parametrize("kind", ["http", "aws", "rocketmq", "eventbridge_target"])
def test_kafka_takes_its_own_type_only(kind: str) -> None:
    """No other connection's login goes to a broker."""
    with pytest.raises(ConnectionUnusable, match=rf"Connection 'shop' is of type '{kind}'.*of type kafka"):
        kafka_settings(Connection("shop", kind, "127.0.0.1", login="zoe", password="hunter2"))


@pytest.mark.parametrize("kind", ["http", "aws", "kafka", "eventbridge_target"])
def test_rocketmq_takes_its_own_type_only(kind: str) -> None:
    """No other connection's login goes to a name server or broker."""
    with pytest.raises(ConnectionUnusable, match=rf"Connection 'shop' is of type '{kind}'.*of type rocketmq"):
        rocketmq_settings(Connection("shop", kind, "127.0.0.1", login="zoe", password="hunter2"))


@pytest.mark.parametrize("kind", ["http", "kafka", "s3", "eventbridge_target"])
def test_s3_takes_its_own_types_only(kind: str) -> None:
    """Stores, S3 targets and SQS buses sign with the keys of connections to AWS alone."""
    with pytest.raises(ConnectionUnusable, match=rf"Connection 'shop' is of type '{kind}'.*aws or eventbridge_store"):
        S3Access.from_connection(Connection("shop", kind, login="zoe", password="hunter2"))


def test_a_dead_letter_queue_and_a_check_are_bound_alike(receiver: Receiver, tmp_path: Path) -> None:
    """What opens a target by another way than a push refuses the same: a queue, `targets check`, `targets send`."""
    queue = {"type": "http", "url": receiver.url("/healthy/queue"), "allow_http": True, "connection": "store"}
    crm = {"type": "http", "url": receiver.url("/healthy/crm"), "allow_http": True, "connection": "bare"}
    rule = {"bus": "orders", "pattern": {}, "targets": {"crm": {**crm, "dead_letter_queue": queue}}}
    (tmp_path / "rules").mkdir()
    text = json.dumps({"buses": {"orders": {"source": {"type": "embedded"}}}, "rules": {"leak": rule}})
    (tmp_path / "rules" / "r.yaml").write_text(text)
    environ = {
        "EVENTBRIDGE_HOME": str(tmp_path / "home"),
        "EVENTBRIDGE_RULES_FOLDER": str(tmp_path / "rules"),
        "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES,
        "EVENTBRIDGE_CONN_STORE": OTHERS["aws"],
        "EVENTBRIDGE_CONN_BARE": "http://?token=hunter2",
    }
    event = b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}'
    with closing(open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))) as runtime:
        destinations = runtime.rule_set().rules["leak"].destinations
        with pytest.raises(ConnectionUnusable, match="of type 'aws'"):
            runtime.open_target("leak", destinations[queue_of("crm")])
        with pytest.raises(ConnectionUnusable, match="names no host"):
            check_target(runtime, "leak", "crm")
        with pytest.raises(ConnectionUnusable, match="names no host"):
            send_event(runtime, "leak", "crm", event)

    assert receiver.requests() == []
