"""A user who has never seen the page replays events, finds the bus that lags, who paused a rule, and reads a chart.

Every step is a click on a text that is visible, or a value typed into a field by its label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from api.pages import OWN
from api.server import Installation, Server, order
from api.windows import log_in, open_chromium
from playwright.sync_api import Browser, Page, expect

_RULES = """
buses:
  shop: {{source: {{type: embedded, partitions: 1, start_at: earliest}}}}
rules:
  copies:
    bus: shop
    pattern: {{type: [order.placed]}}
    targets:
      backup: {{type: file, path: {folder}/backup.jsonl}}
      ledger: {{type: file, path: {folder}/ledger.jsonl}}
"""
_DELIVERED, _LAG = 7, 5


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose bus `shop` has delivered some events in full batches, and lags."""
    folder = tmp_path_factory.mktemp("tasks")
    made = Installation(folder, EVENTBRIDGE_BATCH_MAX_EVENTS="2")
    (folder / "rules" / "shop.yaml").write_text(_RULES.format(folder=folder))
    _publish(made, range(_DELIVERED))
    made.deliver("shop")
    _publish(made, range(_DELIVERED, _DELIVERED + _LAG))
    with Server(made) as running:
        yield running


def _publish(made: Installation, numbers: range) -> None:
    file = made.folder / "orders.jsonl"
    file.write_text("\n".join(json.dumps(order(number)) for number in numbers))
    made.run("events", "publish", "shop", str(file))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def token(shop: Server) -> str:
    """A token of somebody who may operate."""
    return shop.installation.token("ann", "read", "payloads", "operate")


@pytest.fixture
def window(shop: Server, chromium: Browser, token: str) -> Iterator[Page]:
    """A window in Tokyo, after the login."""
    with closing(chromium.new_page(viewport={"width": 1100, "height": 760}, timezone_id="Asia/Tokyo")) as page:
        log_in(page, shop.url, token)
        yield page


@pytest.fixture(scope="module")
def browser(shop: Server, token: str) -> Iterator[httpx.Client]:
    """A browser without scripts."""
    with shop.client() as client:
        client.post("/page/login", data={"token": token}, headers=OWN)
        yield client


def lines(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text().splitlines())


def test_a_user_replays_an_hour_to_one_target(shop: Server, window: Page) -> None:
    """The form counts while it is filled in; the page of the replay shows its end without a click."""
    folder = shop.installation.folder
    before = lines(folder / "ledger.jsonl"), lines(folder / "backup.jsonl")
    window.get_by_role("link", name="Replays").click()
    window.get_by_role("link", name="Replay archived events").click()
    window.get_by_label("Bus").select_option("shop")
    window.get_by_label("Deliver to").select_option("copies / ledger")
    window.get_by_label("From").fill("1h")
    expect(window.get_by_text(f"About {_DELIVERED} archived events")).to_be_visible()
    expect(window.get_by_text(f"They matched {_DELIVERED} deliveries")).to_be_visible()
    window.get_by_role("button", name="Preview").click()
    expect(window.get_by_role("cell", name="copies/ledger")).to_be_visible()
    expect(window.get_by_role("cell", name="copies/backup")).to_have_count(0)
    window.get_by_role("button", name="Start replay").click()
    expect(window.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "0")
    shop.installation.replay(window.url.rpartition("/")[2])

    expect(window.get_by_role("heading", name="done")).to_be_visible()
    expect(window.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
    assert (lines(folder / "ledger.jsonl"), lines(folder / "backup.jsonl")) == (before[0] + _DELIVERED, before[1])


def test_a_user_sees_which_bus_lags_and_when_it_catches_up(window: Page) -> None:
    """The bus with the largest lag comes first, with the time of day at which its lag will be zero."""
    window.get_by_role("link", name="Buses", exact=True).click()
    row = window.locator("tbody tr").first

    expect(row).to_contain_text("shop")
    expect(row.locator("[data-name=Lag]")).to_have_text(str(_LAG))
    expect(row.locator("[data-name='Catches up']")).to_contain_text(re.compile(r"in [\d.,]+ (ms|s|min), at 20\d\d-"))


def test_a_user_finds_who_paused_a_rule(shop: Server, window: Page) -> None:
    """The audit log names the act, the rule and the user in one row, and finds it by a word."""
    shop.installation.run("rules", "pause", "copies")
    shop.installation.run("rules", "resume", "copies")
    window.get_by_role("link", name="Audit log").click()
    window.get_by_label("Contains").fill("pause")
    window.get_by_role("button", name="Find", exact=True).click()
    row = window.locator("tbody tr")

    expect(row).to_have_count(1)
    expect(row).to_contain_text("Pause rule")
    expect(row.locator("[data-name=On]")).to_have_text("copies")
    expect(row.locator("[data-name=By]")).to_contain_text("command")
    expect(row.locator("[data-name=Result]")).to_have_text("done")


def test_a_chart_shows_the_values_of_its_table_below_the_pointer(window: Page) -> None:
    """Of the first and of the last time; none once the pointer has left."""
    window.goto(window.url + "?from=1h")
    chart = window.locator("figure.chart").first
    drawing, tip = chart.locator("svg"), chart.locator("output")
    cells = "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    rows = chart.locator("tbody tr").evaluate_all(cells)
    box = drawing.bounding_box()
    assert box is not None
    shown = []
    for across in (3 / 410, 363 / 410):
        drawing.hover(position={"x": box["width"] * across, "y": 30})
        shown.append(tip.text_content())
    window.mouse.move(1, 1)

    names = ("received", "delivered", "failed")
    wanted = [
        ", ".join(
            [f"{row[0]} UTC", *(f"{name} {value or 'no value'}" for name, value in zip(names, row[1:], strict=True))]
        )
        for row in (rows[0], rows[-1])
    ]
    assert shown == wanted
    expect(tip).to_have_text("")


def test_a_time_is_typed_in_the_zone_that_is_shown(window: Page) -> None:
    """In Tokyo, nine hours ahead; the page asks the server in UTC."""
    since = datetime.now(UTC) - timedelta(minutes=30)
    window.get_by_role("link", name="Replays").click()
    window.get_by_role("link", name="Replay archived events").click()
    window.get_by_role("button", name="Local").click()
    window.get_by_label("Bus").select_option("shop")
    with window.expect_response(re.compile("count=1")) as asked:
        window.get_by_label("From (local time").fill(f"{since + timedelta(hours=9):%Y-%m-%d %H:%M:%S}")

    assert httpx.URL(asked.value.url).params["from"] == f"{since:%Y-%m-%dT%H:%M:%S}"
    expect(window.get_by_text(f"About {_DELIVERED} archived events")).to_be_visible()


def test_events_are_counted_without_a_script(browser: httpx.Client) -> None:
    """By a button of the form of a replay, and of that of a backtest; a new form counts those of the last hour."""
    form = {"bus": "shop", "from": "1h", "only": "copies/backup", "count": "1"}
    first = browser.get("/page/replay", params={"bus": "shop"}).text
    counted = browser.get("/page/replay", params=form).text
    nothing = browser.get("/page/replay", params=form | {"to": "40m"}).text
    wrong = browser.get("/page/replay", params=form | {"from": "yesterday"}).text
    backtest = browser.get("/page/backtest", params={"rule": "copies", "from": "1h"}).text

    assert 'name="from" value="1h"' in first
    for page in (first, counted):
        assert f"About {_DELIVERED} archived events" in page
    assert "They matched 7 deliveries" in counted
    assert "Would be delivered" not in counted
    assert "No event landed in this period" in nothing
    assert "is not a time" in wrong
    assert re.search(r"They matched \d+ deliveries", backtest)
