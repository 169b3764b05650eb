"""`eventbridge events publish`: durable, in order by key, warned of what will not be seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from eventbridge import fault_points
from eventbridge.errors import BusError
from eventbridge.model.partition import Partition
from eventbridge.sources.embedded.bus import EmbeddedBus
from eventbridge.testing.sources import messages_of


def messages(shop: Any, topic: str = "placed") -> dict[Partition, list[bytes]]:
    """Return the bodies that lie in the partitions of a topic."""
    bus = EmbeddedBus(shop.folder / "home" / "bus", "orders", topics=(topic,), clock=lambda: datetime.now(UTC))
    with closing(bus):
        reads = {q: bus.read(q, bus.earliest(q), bus.end(q)) for q in bus.partitions()}
        return {q: [message.body for message in messages_of(blocks)] for q, blocks in reads.items()}


def test_each_line_is_one_event(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Lines are published as they are, to the bus's first topic."""
    file = shop.orders(1, 2, 3)

    result = eventbridge("events", "publish", "orders", file)

    lines = (shop.folder / "orders.jsonl").read_bytes().splitlines()
    assert (result.code, result.out, result.err) == (
        0,
        "3 events published to orders/placed. The next batch of each runner takes them.\n",
        "",
    )
    assert sorted(lines) == sorted(body for bodies in messages(shop).values() for body in bodies)


def test_standard_input_and_another_topic(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """`-` reads standard input, --topic names the topic."""
    event = (shop.folder / shop.orders(1)).read_bytes()

    result = eventbridge("events", "publish", "orders", "-", "--topic", "paid", "--json", stdin=event)

    assert result.json == {"bus": "orders", "topic": "paid", "published": 1, "malformed": 0, "unregistered": []}
    assert sum(map(len, messages(shop, "paid").values())) == 1


def test_a_bus_without_a_rule_says_so(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """No runner takes its events, so neither message promises a batch; `events why` has the reason too."""
    shop.write("rules/unused.yaml", "buses: {unused: {source: {type: embedded}}}")

    result = eventbridge("events", "publish", "unused", shop.orders(1))
    found = eventbridge("events", "why", "o0")

    assert (result.code, result.out) == (0, "1 event published to unused/events.\n")
    assert "no rule uses the bus unused, so no runner takes its events" in " ".join(result.err.split())
    assert "not landed yet" in found.out
    assert "no rule uses the bus unused" in " ".join(found.err.split())


@pytest.mark.parametrize("attribute", ["partitionkey", "subject"])
def test_events_of_one_key_lie_in_one_partition_in_order(
    attribute: str, shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """What has the same `partitionkey`, else the same subject, keeps its order."""
    file = shop.orders(*range(20), **{attribute: "customer-7"})

    eventbridge("events", "publish", "orders", file)

    (bodies,) = [bodies for bodies in messages(shop).values() if bodies]
    assert [json.loads(body)["id"] for body in bodies] == [f"o{number}" for number in range(20)]


def test_a_key_that_is_a_number_is_one_key_in_every_mode(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """Events whose `partitionkey` is 7 or "7" (binary mode makes text of it) lie in one partition; -0 is 0."""
    lines = [
        json.dumps({"specversion": "1.0", "id": str(number), "source": "/s", "type": "t", "partitionkey": key})
        for number, key in enumerate([7, "7"] * 10)
    ]
    zeros = [
        f'{{"specversion":"1.0","id":"z{zero}","source":"/s","type":"t","partitionkey":{zero}}}' for zero in ("-0", "0")
    ]

    eventbridge("events", "publish", "orders", shop.write("sevens.jsonl", *lines))
    (sevens,) = [bodies for bodies in messages(shop).values() if bodies]
    eventbridge("events", "publish", "orders", shop.write("zeros.jsonl", *zeros))

    assert [json.loads(body)["id"] for body in sevens] == [str(number) for number in range(20)]
    partitions = [partition for partition, bodies in messages(shop).items() for body in bodies if b'"id":"z' in body]
    assert len(partitions) == 2
    assert len(set(partitions)) == 1


def test_it_warns_of_what_is_malformed(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """What is not a CloudEvent is published all the same, with a warning that names the first and its line."""
    file = shop.write("mixed.jsonl", (shop.folder / shop.orders(1)).read_text().strip(), "", "nonsense", "{}")

    result = eventbridge("events", "publish", "orders", file)

    assert result.code == 0
    assert result.out == "3 events published to orders/placed. The next batch of each runner takes them.\n"
    warned = "Warning: malformed events, which will be dead-lettered: 2; the first: line 3: not JSON"
    assert result.err.startswith(warned)


def test_it_warns_before_the_first_run_of_a_bus_that_starts_at_latest(
    shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """A bus that starts at latest, before its runner's first run: warned; after it: not."""
    shop.write_rules(start_at="latest")
    file = shop.orders(1)

    before = eventbridge("events", "publish", "orders", file, "--json")
    shop.deliver()
    after = eventbridge("events", "publish", "orders", file, "--json")
    shop.deliver()

    assert before.json["unregistered"] == ["orders"]
    assert "never run" in before.err
    assert "start_at: earliest" in before.err
    assert after.json["unregistered"] == []
    assert after.err == ""
    assert eventbridge("audit", "--json").json["events"]["read"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("order", "-"), "Did you mean orders?"),
        (("orders", "-", "--topic", "plced"), "Did you mean placed?"),
        (("orders", "nowhere.jsonl"), "cannot read nowhere.jsonl: No such file"),
        (("orders", "."), "Is a directory"),
    ],
)
def test_a_users_error_publishes_nothing(
    arguments: tuple[str, ...], said: str, shop: Any, eventbridge: Callable[..., Any]
) -> None:
    """A bus, topic or file that is not there: exit code 2, the nearest name, nothing published."""
    result = eventbridge("events", "publish", *arguments, stdin=b"{}")

    assert result.code == 2
    assert said in result.err
    assert not any(messages(shop).values())


def test_a_bus_that_fails_says_how_far_it_came(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """If the disk fails half way, the error names how many were published and the line to continue at; exit code 4."""
    file = shop.orders(*range(1_500))
    calls = 0

    def fail_second(point: str) -> None:
        nonlocal calls
        calls += point == "bus.publish"
        if calls == 2 and point == "bus.publish":
            raise BusError("the disk is full")

    fault_points.install(fail_second)
    result = eventbridge("events", "publish", "orders", file)

    assert result.code == 4
    assert result.err.endswith("Error: 1,000 events were published, but none from line 1001 on: the disk is full\n")
    assert sum(map(len, messages(shop).values())) == 1_000


def test_a_line_without_an_end_is_not_read_whole(
    shop: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device or a binary file would fill the memory."""
    monkeypatch.setattr("eventbridge.cli.lines._MAX_LINE_BYTES", 1_000)

    result = eventbridge("events", "publish", "orders", "/dev/zero")

    assert result.code == 2
    assert "line 1 has more than 1,000 bytes" in result.err


def test_a_blank_filter_of_a_search_is_refused(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """An unset variable of a script would find everything."""
    results = {option: eventbridge("events", "find", option, "") for option in ("--from", "--to", "--type", "--bus")}

    assert {option: result.code for option, result in results.items()} == dict.fromkeys(results, 2)
    assert all(f"{option} is empty" in result.err for option, result in results.items())
