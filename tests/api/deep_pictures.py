"""Takes the pictures of the page in README and docs, of a shop after 24 minutes; see `make screenshots`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from api.server import Installation, Server
from api.windows import log_in, open_chromium
from demo.receiver import ADDRESSES, Receiver
from playwright.sync_api import Page

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.open import open_runtime
from eventbridge.sources.embedded.bus import EmbeddedBus

RULES = """
buses:
  orders: {source: {type: embedded, partitions: 2, start_at: earliest}}
rules:
  large-orders:
    description: orders that the account team wants to see at once
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 1000]}]}}
    targets:
      accounts: {type: http, url: "URL/healthy/accounts", allow_http: true}
      partner: {type: http, url: "URL/status/410", allow_http: true}
  refunds:
    bus: orders
    pattern: {type: [order.refunded], data: {amount: [{numeric: [">", 0]}]}}
    targets:
      ledger: {type: http, url: "URL/status/400", allow_http: true}
  warehouse:
    bus: orders
    pattern: {type: [{prefix: order.}]}
    targets:
      stock: {type: file, path: FOLDER/stock.jsonl}
"""
MINUTES = 24


def order(number: int) -> dict[str, object]:
    """Return an event of the shop."""
    kind = "order.refunded" if number % 41 == 7 else "order.placed"
    data = {"id": f"A-{number}", "amount": 19 + number * 37 % 1_400, "customer": {"city": "Bern"}}
    event = {"specversion": "1.0", "id": f"order-{number}", "source": "/shop", "type": kind, "subject": f"A-{number}"}
    return {**event, "data": data}


def deliver(made: Installation, first: int, behind: timedelta) -> int:
    """Deliver the events of a minute, on the clock of that minute, and return the number of the next event."""

    def clock() -> datetime:
        return datetime.now(UTC) - behind

    minute = round(behind.total_seconds() / 60)
    count = 30 + round(18 * math.sin(minute / 7)) + minute % 5
    waited = timedelta(seconds=2 + minute * 7 % 5)
    folder = made.folder / "home" / "bus"
    with EmbeddedBus(folder, "orders", topics=("events",), partitions=2, clock=lambda: clock() - waited) as bus:
        bodies = (json.dumps(order(number)).encode() for number in range(first, first + count))
        bus.publish([(body, None) for body in bodies])
    settings, connections = Settings.from_mapping(made.env), connections_from_environment(made.env)
    with closing(open_runtime(settings, connections, clock=clock)) as runtime:
        deliver_until_idle(runtime, "orders", InProcessRouter(runtime.store), wait_seconds=0.0)
    return first + count


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose installation has delivered for 24 minutes."""
    folder = tmp_path_factory.mktemp("shop")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES=ADDRESSES)
    with Receiver(folder / "requests.jsonl") as receiver:
        rules = RULES.replace("FOLDER", str(folder)).replace("URL", receiver.url("").rstrip("/"))
        (folder / "rules" / "orders.yaml").write_text(rules)
        number = 0
        for minute in range(MINUTES, 0, -1):
            number = deliver(made, number, timedelta(minutes=minute))
    with Server(made) as running:
        yield running


@pytest.fixture(scope="module")
def window(shop: Server) -> Iterator[Page]:
    """A browser window that is logged in."""
    with open_chromium() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        log_in(page, shop.url, shop.installation.token("ann", "read", "payloads"))
        yield page


@pytest.mark.parametrize(
    ("name", "path"),
    [("page-overview", "?from=1h"), ("page-event", "/event?id=order-7"), ("page-rule", "/rules/large-orders")],
)
def test_pictures_are_taken(name: str, path: str, shop: Server, window: Page, tmp_path: Path) -> None:
    """The top of each page, light and dark."""
    pictures = Path(os.environ.get("TEST_SCREENSHOTS") or tmp_path)
    window.goto(f"{shop.url}/page{path}")
    for scheme, file in (("dark", f"{name}-dark.png"), ("light", f"{name}.png")):
        window.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        window.screenshot(path=pictures / file)
