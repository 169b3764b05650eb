"""Sets up the examples of the brokers' pages, for the tests of buses and targets on a broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pipeline.modes import deliver_all
from services.brokers import Broker

DOCS = Path(__file__).parents[2] / "docs" / "howto"


def example_of(kind: str, block: str) -> str:
    """Return the example on a broker's page in the block with this name."""
    page = (DOCS / f"connect-{kind}.md").read_text()
    (example,) = re.findall(rf"^```yaml {block}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(example)


def connection_name(broker: Broker) -> str:
    """Return the name of the setting with the connection of the examples."""
    return f"EVENTBRIDGE_CONN_SHOP_{broker.kind.upper()}"


def connect(site: Any, broker: Broker) -> None:
    """Set the connection of the examples to a broker."""
    site.environ[connection_name(broker)] = broker.server.connection


def shop_on(site: Any, broker: Broker, folder: Path) -> Any:
    """Set up the page's example with a new topic of three partitions, and return the installation."""
    broker.make_topics("orders", partitions=3)
    connect(site, broker)
    site.write_rules(example_of(broker.kind, "rules").replace("path: orders/", f"path: {folder}/"))
    return site


def publish(site: Any, *bodies: bytes) -> None:
    """Publish to the bus of the example, without keys."""
    publisher = site.runtime.open_publisher(site.runtime.rule_set().buses["orders"])
    publisher.publish([(body, None) for body in bodies])
    publisher.close()


def deliver(site: Any, runner: str = "orders") -> None:
    """Deliver until nothing is pending, in the mode of the tests."""
    deliver_all(site.runtime, runner)


def delivered(folder: Path) -> list[str]:
    """Return the ids of the orders in the target's file."""
    return sorted(json.loads(line)["id"] for line in (folder / "big.jsonl").read_text().splitlines())
