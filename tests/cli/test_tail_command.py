"""`eventbridge events tail`: what arrives on a bus, forwarded to a server, and nothing committed or recorded."""

from __future__ import annotations

import hashlib
import json
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from demo.receiver import Receiver
from services.kafka import Kafka, make_topics

from eventbridge.policy.webhook_signature import keys_of, signature_problem

FROM_START = ("--from-beginning", "--limit")


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    """A server on this host that keeps what it gets."""
    with Receiver(tmp_path / "received.jsonl", whole=True) as running:
        yield running


def published(shop: Any, eventbridge: Callable[..., Any], *lines: str) -> None:
    """Publish lines, all to one partition of the bus."""
    file = shop.write("all.jsonl", *(line.replace('"id"', '"partitionkey": "k", "id"') for line in lines))
    assert eventbridge("events", "publish", "orders", file).code == 0


def orders(shop: Any, *amounts: float, **attributes: Any) -> list[str]:
    """Return the lines of orders."""
    return Path(shop.orders(*amounts, **attributes)).read_text().splitlines()


def everything(shop: Any) -> dict[str, Any]:
    """Return the rows of the ledger, and a hash of each file of the store."""
    home = shop.folder / "home"
    with sqlite3.connect(f"file:{home}/ledger.sqlite?mode=ro", uri=True) as ledger:
        tables = [name for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows: dict[str, Any] = {each: ledger.execute(f'SELECT * FROM "{each}"').fetchall() for each in tables}
    files = {str(each): each for each in (home / "store").rglob("*") if each.is_file()}
    return rows | {name: hashlib.sha256(each.read_bytes()).hexdigest() for name, each in files.items()}


def test_each_event_is_a_line(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Time, type, source, id, subject; what is no event is shown with the reason; the counts are on standard error."""
    published(shop, eventbridge, *orders(shop, 1, 2, subject="A-17"), "nonsense")

    result = eventbridge("events", "tail", "orders", *FROM_START, "3")

    lines = sorted(result.out.splitlines(), key=lambda line: "malformed" in line)
    assert result.code == 0
    assert [line[21:] for line in lines[:2]] == [f"order.placed  /shop  o{number}  A-17" for number in range(2)]
    assert lines[2][21:].startswith("malformed  placed/")
    assert "not JSON" in lines[2]
    assert result.err.endswith("3 messages shown, 1 malformed\n")


def test_a_document_is_a_line(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """With -o json each line is one document, whose event has its numbers as they were written."""
    line = orders(shop, 1)[0].replace('"amount": 1', '"amount": 1.10')
    published(shop, eventbridge, line, "nonsense")

    result = eventbridge("events", "tail", "orders", *FROM_START, "2", "-o", "json")
    as_yaml = eventbridge("events", "tail", "orders", *FROM_START, "1", "-o", "yaml")

    documents = sorted(map(json.loads, result.out.splitlines()), key=lambda each: each["event"] is None)
    assert '"amount":1.10' in result.out
    assert documents[0]["event"]["id"] == "o0"
    assert (documents[0]["topic"], documents[0]["malformed"], documents[0]["body"]) == ("placed", None, None)
    assert (documents[1]["event"], documents[1]["body"], documents[1]["forwarded"]) == (None, "nonsense", None)
    assert documents[1]["malformed"].startswith("not JSON")
    assert as_yaml.out.startswith("---\n")


def test_a_pattern_chooses_events(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Only events that match are shown; a pattern with an error is refused as that of a rule is."""
    published(shop, eventbridge, *orders(shop, 500, 1500))

    shown = eventbridge(
        "events", "tail", "orders", "--pattern", '{"data": {"amount": [{"numeric": [">", 1000]}]}}', *FROM_START, "1"
    )
    refused = eventbridge("events", "tail", "orders", "--pattern", '{"data": {"amount": [{"numerik": [">", 1]}]}}')

    assert (shown.code, len(shown.out.splitlines()), " o1" in shown.out) == (0, 1, True)
    assert refused.code == 2
    assert "numeric" in refused.err


def test_an_event_is_forwarded_with_its_signature(
    shop: Any, eventbridge: Callable[..., Any], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body is the event's own; the secret is that of the variable, or a new one, which is shown."""
    line = orders(shop, 1.5)[0]
    published(shop, eventbridge, line, "nonsense")
    monkeypatch.setenv("HOOK_SECRET", "whsec_c2VjcmV0LXNlY3JldA==")
    url = ("--forward", receiver.url("/healthy/hook?key=hu5h"))

    given = eventbridge("events", "tail", "orders", *url, "--secret-from", "HOOK_SECRET", *FROM_START, "2")
    made = eventbridge("events", "tail", "orders", *url, *FROM_START, "2", "-o", "json")

    first, second = receiver.wait_for(2)
    new = made.err.split("the secret ")[1].split()[0]
    assert "-> 200 in " in given.out
    assert "c2VjcmV0" not in given.out + given.err
    assert f"posted to {receiver.url('/healthy/hook')}, signed" in given.err
    assert "hu5h" not in given.out + given.err
    assert given.err.endswith("2 messages shown, 1 malformed, 1 forwarded, 0 failed\n")
    assert [json.loads(each)["forwarded"]["status"] for each in made.out.splitlines() if "o0" in each] == [200]
    assert json.loads(first["body"]) == json.loads(line) | {"partitionkey": "k"}
    assert first["headers"]["content-type"] == "application/cloudevents+json; charset=UTF-8"
    assert first["headers"]["webhook-id"] == second["headers"]["webhook-id"]
    for request, secret in ((first, "whsec_c2VjcmV0LXNlY3JldA=="), (second, new)):
        at = float(request["headers"]["webhook-timestamp"])
        keys = keys_of("standard", secret)
        assert signature_problem("standard", keys, request["headers"], request["body"], at) == ""


def test_a_failed_forward_is_shown_and_the_next_event_follows(
    shop: Any, eventbridge: Callable[..., Any], receiver: Receiver
) -> None:
    """An error status, a redirect that is not followed, and no server: each is shown, and the exit code is 0."""
    published(shop, eventbridge, *orders(shop, 1, 2))

    refused = eventbridge("events", "tail", "orders", "--forward", receiver.url("/status/500"), *FROM_START, "2")
    moved = eventbridge("events", "tail", "orders", "--forward", receiver.url("/status/302"), *FROM_START, "1")
    nowhere = eventbridge("events", "tail", "orders", "--forward", "http://127.0.0.1:9/", *FROM_START, "2")

    assert [result.code for result in (refused, moved, nowhere)] == [0, 0, 0]
    assert refused.out.count("-> 500 in") == 2
    assert "redirects are not followed" in moved.out
    assert nowhere.out.count("-> failed: ") == 2
    assert nowhere.err.endswith("2 messages shown, 0 forwarded, 2 failed\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("order",), "Did you mean orders?"),
        (("orders", "--forward", "file:///etc/passwd"), "not a URL to forward events to"),
        (("orders", "--forward", "localhost:3000?key=hu5h"), "such as http://localhost:3000"),
        (("orders", "--forward", "http://me:hu5h@localhost:3000"), "has credentials"),
        (
            ("orders", "--forward", "http://localhost:3000", "--secret-from", "NO_SUCH"),
            "the variable NO_SUCH is not set",
        ),
        (("orders", "--forward", "http://localhost:3000", "--secret-from", "HOME"), "not one of Standard Webhooks"),
        (("orders", "--secret-from", "HOME"), "needs --forward"),
    ],
)
def test_a_users_error_ends_it(
    arguments: tuple[str, ...], said: str, shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """Exit code 2, and a sentence with the remedy."""
    result = eventbridge("events", "tail", *arguments)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "hu5h" not in result.err


def test_a_wrong_option_is_named_without_its_secret(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """A pattern with an error, and a secret in place of the name of its variable."""
    pattern = eventbridge("events", "tail", "orders", "--pattern", '{"type": [{"prefx": "a"}]}')
    forward = ("--forward", "http://127.0.0.1:9/", "--secret-from")
    secret = eventbridge("events", "tail", "orders", *forward, "whsec_c2VjcmV0LTQ3MTE=")
    unset = eventbridge("events", "tail", "orders", *forward, "NEVER_SET")

    assert (pattern.code, secret.code, unset.code) == (2, 2, 2)
    assert "--pattern: " in pattern.err
    assert "whsec_c2" not in secret.err
    assert "the variable NEVER_SET is not set" in unset.err


def test_a_queue_is_refused(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Reading a queue would hide its messages from runners, so its bus is not even opened."""
    (shop.rules / "queue.yaml").write_text("buses: {jobs: {source: {type: sqs, connection: aws, topics: [jobs]}}}\n")

    result = eventbridge("events", "tail", "jobs")

    assert result.code == 2
    assert "would hide its messages from their runners" in result.err
    assert "events find --bus jobs" in result.err


def test_nothing_is_committed_or_recorded(shop: Any, eventbridge: Callable[..., Any], receiver: Receiver) -> None:
    """Ledger and store are the same before and after, and a runner gets every event."""
    published(shop, eventbridge, *orders(shop, 1, 2000))
    shop.deliver()
    file = shop.write("more.jsonl", *(line.replace('"id": "o', '"id": "p') for line in orders(shop, 3, 4000)))
    assert eventbridge("events", "publish", "orders", file).code == 0
    before = everything(shop)

    result = eventbridge("events", "tail", "orders", "--forward", receiver.url("/healthy/hook"), *FROM_START, "4")

    assert result.code == 0
    assert everything(shop) == before
    shop.deliver()
    assert len((shop.folder / "archive.jsonl").read_text().splitlines()) == 4


def test_it_shows_what_comes_until_ctrl_c(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Only events from now on are shown, also those of a bus that was not there before; Ctrl-C ends it with 0."""
    with shop.process("events", "tail", "orders") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        while "Ctrl-C" not in process.stderr.readline():
            assert process.poll() is None
        published(shop, eventbridge, *orders(shop, 1))
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)

    assert " o0" in line
    assert (process.returncode, out) == (0, "")
    assert err.endswith("1 message shown\n")
    assert not (shop.folder / "home" / "store").exists()


def test_a_topic_of_kafka(
    shop: Any, eventbridge: Callable[..., Any], kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages are shown, from all partitions."""
    make_topics(kafka, "tailed")
    connection = json.dumps({"conn_type": "kafka", "host": "127.0.0.1", "port": kafka.ports["open"]})
    monkeypatch.setenv("EVENTBRIDGE_CONN_LOCAL", connection)
    (shop.rules / "kafka.yaml").write_text(
        "buses: {live: {source: {type: kafka, connection: local, topics: [tailed], start_at: earliest}}}\n"
    )
    assert eventbridge("events", "publish", "live", shop.orders(1, 2, 3)).code == 0

    result = eventbridge("events", "tail", "live", *FROM_START, "3")

    assert result.code == 0, result.err
    assert sorted(line.split()[-1] for line in result.out.splitlines()) == ["o0", "o1", "o2"]
