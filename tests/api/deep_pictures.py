"""Takes the pictures of the page in README and docs, of a shop after 24 minutes; see `make screenshots`."""

from __future__ import annotations

import base64
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
from playwright.sync_api import Page, expect

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
    owner: shop
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
#: The address of each page of which pictures are taken, by the name of the pictures.
PAGES = {
    "overview": "?from=1h",
    "events": "/events?from=1h",
    "event": "/event?id=order-7",
    "targets": "/targets",
    "target": "/targets/large-orders/accounts?from=1h",
    "buses": "/buses",
    "dead-letters": "/dead-letters",
    "redrives": "/redrives",
    "replays": "/replays",
    "replay-form": "/replay?bus=orders&from=1h&only=refunds%2Fledger&count=1",
    "rules": "/rules",
    "rule": "/rules/large-orders?from=1h",
    "playground": "/rules/large-orders/test?event=order-30",
    "schemas": "/schemas",
    "schema": "/schemas/order.placed",
    "backtests": "/backtests",
    "batches": "/batches",
    "audit-log": "/actions",
    "api": "/api",
}
#: The end of what a page shows, or of the menu; a picture has at most 900 pixels, or 1,200 of a narrow page.
END = """() => {
  const parts = [...document.querySelectorAll("main > *, .page > *, .side > *")];
  const ends = parts.map(each => each.getBoundingClientRect().bottom);
  return Math.min(Math.ceil(Math.max(...ends)) + 16, innerWidth < 500 ? 1200 : 900);
}"""
ENCODE = """async (picture) => {
  const image = new Image();
  await new Promise((done, failed) => { image.onload = done; image.onerror = failed;
    image.src = "data:image/png;base64," + picture; });
  const canvas = document.createElement("canvas");
  canvas.width = image.width; canvas.height = image.height;
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", 0.6);
}"""


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
            repair(running)
            yield running


def repair(shop: Server) -> None:
    """Have an operator pause a rule, redrive a dead letter, replay events twice, and backtest a rule."""
    made = shop.installation
    with shop.api(made.token("ann", "read", "payloads", "operate")) as api:
        api.post("rules", "warehouse", "pause")
        api.post("rules", "warehouse", "resume")
        made.redrive(
            api.start_redrive(rule="refunds", names=[next(iter(api.dead_letters(rule="refunds"))).name]).redrive_id
        )
        made.replay(api.start_replay("orders", "20m", rules=["warehouse"]).replay_id)
        api.start_replay("orders", "15m", rules=["large-orders"])
    made.backtest("large-orders")


@pytest.fixture(scope="module")
def window(shop: Server) -> Iterator[Page]:
    """A browser window that is logged in."""
    with open_chromium() as chromium:
        page = chromium.new_page(bypass_csp=True)  # the picture is encoded within the page
        log_in(page, shop.url, shop.installation.token("bea", "read", "payloads", "operate"))
        yield page


@pytest.fixture(scope="module")
def paths(shop: Server, window: Page) -> dict[str, str]:
    """The address of each page by the name of its pictures."""
    found = dict(PAGES)
    for name, path, link in (
        ("batch", "/batches", "td.name a"),
        ("replay", "/replays", "td.name a"),
        ("backtest", "/backtests", "td a"),
        ("dead-letter", "/dead-letters?by=letter", "td a[href*='/dead-letters/']"),
    ):
        window.goto(f"{shop.url}/page{path}")
        href = window.locator(link).first.get_attribute("href")
        assert href is not None
        found[name] = href.removeprefix("/page")
    return found


def take(window: Page, file: Path) -> None:
    """Write a picture of the page down to the end of what it shows, as WebP, which Chromium encodes."""
    end = window.evaluate(END)
    width = window.viewport_size["width"] if window.viewport_size else 0
    picture = window.screenshot(clip={"x": 0, "y": 0, "width": width, "height": end}, full_page=True)
    encoded = window.evaluate(ENCODE, base64.b64encode(picture).decode())
    file.write_bytes(base64.b64decode(encoded.partition(",")[2]))
    assert file.stat().st_size < 120_000


@pytest.mark.parametrize("name", [*PAGES, "batch", "replay", "backtest", "dead-letter"])
def test_pictures_are_taken(name: str, paths: dict[str, str], shop: Server, window: Page, tmp_path: Path) -> None:
    """Each page in light and dark, and in light at 400 pixels."""
    pictures(shop, window, f"{shop.url}/page{paths[name]}", name, tmp_path)


def test_pictures_of_the_portal_are_taken(shop: Server, window: Page, tmp_path: Path) -> None:
    """As a partner sees it, who may see payloads."""
    options = ("--portal", "--ttl", "7d", "--scope", "payloads")
    link = shop.installation.run("tokens", "create", "shop-partner", "--owner", "shop", *options)
    window.goto(f"{shop.url}/portal/page/open#{link.strip().partition('#')[2]}")
    expect(window.get_by_role("heading", name="shop", exact=True)).to_be_visible()
    pictures(shop, window, f"{shop.url}/portal/page", "portal", tmp_path)


def pictures(shop: Server, window: Page, url: str, name: str, folder: Path) -> None:
    """Take the pictures of a page."""
    folder = Path(os.environ.get("TEST_SCREENSHOTS") or folder)
    for scheme, width, end in (("light", 1280, ""), ("dark", 1280, "-dark"), ("light", 400, "-narrow")):
        window.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        window.set_viewport_size({"width": width, "height": 900})
        response = window.goto(url)
        assert response is not None
        assert response.status == 200
        take(window, folder / f"page-{name}{end}.webp")
