"""A bus that is topics of a real RocketMQ: its events go through all stages, and the books balance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from services.rocketmq import RocketMQ, begin_file, drop_old_files, make_topics, set_queues

from eventbridge.errors import OffsetGapError
from eventbridge.rocketmq.remoting.messages import Outgoing
from eventbridge.routing.in_process import InProcessRouter
from eventbridge.stages.ingest.buffer import buffer
from eventbridge.stages.ingest.listen import listen
from eventbridge.stages.letters.reader import dead_letters
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.deliver import deliver_until_idle
from eventbridge.stages.runtime.runtime import Runtime

PAGE = (Path(__file__).parents[2] / "docs" / "connectors" / "rocketmq.md").read_text()

Order = Callable[..., bytes]


@pytest.fixture
def on_rocketmq(site: Any, rocketmq: RocketMQ, tmp_path: Path) -> Any:
    """The installation of the page's example, its topic made just now, with three queues."""
    make_topics(rocketmq, "orders", queues=3)
    site.environ["EVENTBRIDGE_CONN_SHOP_ROCKETMQ"] = rocketmq.connection
    (example,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    site.write_rules(example.replace("/srv/orders/", f"{tmp_path}/"))
    return site


def publish(site: Any, *bodies: bytes) -> None:
    """Publish to the bus of the example, without keys."""
    publisher = site.work.open_publisher(site.work.rule_set().buses["orders"])
    publisher.publish([(body, None) for body in bodies])
    publisher.close()


def deliver(site: Any) -> None:
    """Move batches through all stages until nothing waits."""
    deliver_until_idle(site.work, "orders", InProcessRouter(site.work.store))


def delivered(folder: Path) -> list[str]:
    """Return the ids of the orders in the target's file."""
    return sorted(json.loads(line)["id"] for line in (folder / "big.jsonl").read_text().splitlines())


def test_the_pages_example_delivers(on_rocketmq: Any, order: Order, tmp_path: Path) -> None:
    """What matches is at the target once, the audit finds nothing, and the group stands at the end there too."""
    publish(on_rocketmq, *(order(number, 1990 + number) for number in range(6)), order("small"), b"no event")
    deliver(on_rocketmq)
    publish(on_rocketmq, order("late", 5000))
    deliver(on_rocketmq)

    found = audit(on_rocketmq.work)
    with_bus = on_rocketmq.work.open_source(on_rocketmq.work.rule_set().buses["orders"])
    assert delivered(tmp_path) == ["0", "1", "2", "3", "4", "5", "late"]
    assert (found.batches, found.differences) == (2, ())
    assert with_bus.committed("orders") == with_bus.ends()
    with_bus.close()


def test_a_stage_that_dies_reading_is_finished_by_the_next(
    on_rocketmq: Any, order: Order, dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Wherever listen or buffer stops, the next run reads the same ranges: nothing is missing, nothing comes twice."""
    publish(on_rocketmq, *(order(number) for number in range(7)), b"no event")

    def land(work: Runtime) -> None:
        buffer(work, listen(work, "orders") or "")

    for wreck in dying_everywhere(on_rocketmq, land):
        land(wreck.reopen())
        (batch,) = wreck.work.ledger.batches(limit=None)
        landed = [file.detail for file in wreck.work.ledger.files(batch.batch_id, "buffer")]
        assert (sum(each.read for each in landed), sum(each.valid for each in landed)) == (8, 7)
        assert batch.state == "buffered"


def test_events_come_in_every_form(on_rocketmq: Any, rocketmq: RocketMQ, order: Order, tmp_path: Path) -> None:
    """In the body, in headers, or as plain JSON by a mapping; what is neither is a dead letter that says why."""
    on_rocketmq.write_rules(
        (on_rocketmq.folder / "rules" / "rules.yaml")
        .read_text()
        .replace("start_at: earliest", "start_at: earliest, mapping: {type: $header.TAGS, source: /old, id: $.no}")
    )
    attributes = {"CE_specversion": "1.0", "CE_type": "order.placed", "CE_source": "/shop", "CE_id": "b"}
    with closing(rocketmq.client()) as client:
        queue = client.queues("orders")[0]
        client.send(queue, Outgoing(b'{"amount": 2000}', attributes))
        client.send(queue, Outgoing(order("s", 2000), {"CE_contenttype": "application/cloudevents+json"}))
        client.send(queue, Outgoing(b'{"no": 17, "amount": 2000}', {"TAGS": "order.placed"}))
        client.send(queue, Outgoing(b'{"amount": 2000}', {"TAGS": "order.placed"}))
        client.send(queue, Outgoing(b'{"no": 18, "amount": 2000}'))
        client.send(queue, Outgoing(b"no JSON"))
    deliver(on_rocketmq)

    letters = {letter["detail"] for letter in dead_letters(on_rocketmq.work)}
    assert delivered(tmp_path) == ["17", "b", "s"]
    assert {letter.partition(":")[0] for letter in letters} == {"mapping of id", "mapping of type", "data"}
    assert audit(on_rocketmq.work).differences == ()


@pytest.mark.parametrize(("policy", "taken"), [("earliest", ["3", "4", "5", "new"]), ("latest", ["new"])])
def test_what_was_dropped_before_it_was_taken_is_a_gap(
    on_rocketmq: Any, rocketmq: RocketMQ, order: Order, tmp_path: Path, policy: str, taken: list[str]
) -> None:
    """The runner goes on as `if_deleted` says, and the books have the offsets that are gone."""
    make_topics(rocketmq, "orders")
    rules = (on_rocketmq.folder / "rules" / "rules.yaml").read_text()
    on_rocketmq.write_rules(rules.replace("start_at: earliest", "start_at: earliest, if_deleted: fail"))
    publish(on_rocketmq, order("first", 5000))
    deliver(on_rocketmq)
    publish(on_rocketmq, *(order(number, 5000) for number in range(3)))
    begin_file(rocketmq)
    begun = datetime.now(UTC)
    publish(on_rocketmq, *(order(number, 5000) for number in range(3, 6)))
    drop_old_files(rocketmq, begun)
    with pytest.raises(OffsetGapError, match=r"dropped offsets 1 to 4 of orders/.*.*write if_deleted: earliest"):
        deliver(on_rocketmq)
    on_rocketmq.write_rules(rules.replace("start_at: earliest", f"start_at: earliest, if_deleted: {policy}"))
    deliver(on_rocketmq)
    publish(on_rocketmq, order("new", 5000))
    deliver(on_rocketmq)

    found = audit(on_rocketmq.work)
    gap = 3 if policy == "earliest" else 6
    assert delivered(tmp_path) == sorted(["first", *taken])
    assert (found.events["gaps"], found.events["read"], found.differences) == (gap, 8 - gap, ())


def test_queues_that_are_added_are_read_from_their_beginning(
    on_rocketmq: Any, rocketmq: RocketMQ, order: Order, tmp_path: Path
) -> None:
    """Also with `start_at: latest`, which counts where the runner began."""
    publish(on_rocketmq, order("old", 5000))
    deliver(on_rocketmq)
    set_queues(rocketmq, "orders", 6)
    publish(on_rocketmq, *(order(number, 5000) for number in range(6)))
    deliver(on_rocketmq)

    assert delivered(tmp_path) == ["0", "1", "2", "3", "4", "5", "old"]
    assert audit(on_rocketmq.work).differences == ()


def test_a_topic_that_was_made_again_stops_the_runner(on_rocketmq: Any, rocketmq: RocketMQ, order: Order) -> None:
    """While it is shorter than what was committed: RocketMQ gives topics no identity."""
    publish(on_rocketmq, *(order(number) for number in range(9)))
    deliver(on_rocketmq)
    make_topics(rocketmq, "orders", queues=3)
    publish(on_rocketmq, order("1"))

    with pytest.raises(OffsetGapError):
        deliver(on_rocketmq)
