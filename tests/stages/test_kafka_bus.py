"""A bus that is topics of a real Kafka broker: its events go through all stages, and the books balance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from services.kafka import Kafka, make_topics

from eventbridge.routing.in_process import InProcessRouter
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.deliver import deliver_until_idle

PAGE = (Path(__file__).parents[2] / "docs" / "connectors" / "kafka.md").read_text()

Order = Callable[..., bytes]


@pytest.fixture
def on_kafka(site: Any, kafka: Kafka, tmp_path: Path) -> Any:
    """The installation of the page's example, its topic made just now, with three partitions."""
    make_topics(kafka, "orders", queues=3)
    site.environ["EVENTBRIDGE_CONN_SHOP_KAFKA"] = kafka.connection
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


def test_the_pages_example_delivers(on_kafka: Any, order: Order, tmp_path: Path) -> None:
    """What matches is at the target once, the audit finds nothing, and the group stands at the end in Kafka too."""
    publish(on_kafka, *(order(number, 1990 + number) for number in range(6)), order("small"), b"no event")
    deliver(on_kafka)
    publish(on_kafka, order("late", 5000))
    deliver(on_kafka)

    found = audit(on_kafka.work)
    with_bus = on_kafka.work.open_source(on_kafka.work.rule_set().buses["orders"])
    assert delivered(tmp_path) == ["0", "1", "2", "3", "4", "5", "late"]
    assert (found.batches, found.differences) == (2, ())
    assert with_bus.committed("orders") == with_bus.ends()
    with_bus.close()
