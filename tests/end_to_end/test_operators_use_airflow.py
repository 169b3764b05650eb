"""What operators do in Airflow's own pages, in a real browser on a real Airflow: forms, backfills, pools.

Its pictures stand in docs/operations.md; `make screenshots` takes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from end_to_end.browser import Browser, browsing
from end_to_end.looks import takes
from end_to_end.running import Running
from playwright.sync_api import expect

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def browser(operating: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser window on the environment's Airflow."""
    with browsing(operating.places, tmp_path_factory.mktemp("pictures")) as browser:
        yield browser


def test_events_are_published_by_the_form(operating: Running, browser: Browser) -> None:
    """An operator pastes events into the form of `publish_events`; every rule of the bus delivers them."""
    event = {"specversion": "1.0", "source": "/shop", "type": "order.placed", "data": {"id": "A-17"}}
    browser.trigger_form("publish_events")
    browser.fill("bus", "orders")
    browser.fill("events", "\n".join(json.dumps({**event, "id": f"form-{number}"}) for number in range(3)))
    browser.picture("publish-form")
    browser.trigger()

    operating.until("both rules delivered", lambda: delivered(operating) == {"invoices": 3, "accounts": 3})


def test_a_replay_is_triggered_by_the_form(operating: Running, browser: Browser) -> None:
    """The form of `replay_events` delivers the archived events again, to the rule that it names, under new ids."""
    operating.until_settled()
    browser.trigger_form("replay_events")
    browser.fill("bus", "orders")
    browser.fill_time("From", "2026/01/01", "00:00")
    browser.fill("rules", "accounts")
    browser.picture("replay-form")
    browser.trigger()

    operating.until("its rule has them twice", lambda: delivered(operating) == {"invoices": 3, "accounts": 6})
    operating.until_settled()
    assert len(set(operating.requests("/healthy/accounts"))) == 6
    assert operating.differences() == []


def test_a_rule_is_tuned_in_admin_pools(operating: Running, browser: Browser) -> None:
    """A pool of 0 slots keeps its rule's deliveries waiting and nobody else's; with slots again they go out."""
    browser.open("pools")
    browser.set_slots("rule.invoices", 0)
    expect(browser.page.get_by_text("rule.invoices (0 Slots)")).to_be_visible()
    browser.picture("pool-closed")
    operating.publish("orders", range(10))
    operating.until("the other rule delivers", lambda: takes(operating, "/healthy/accounts", 16))
    operating.until("the batch is committed", lambda: operating.open() == [])
    waiting = delivered(operating)["invoices"]

    browser.open("pools")
    browser.set_slots("rule.invoices", 3)
    operating.until("the rule delivers", lambda: takes(operating, "/healthy/invoices", 13))
    operating.until_settled()

    assert waiting == 3
    assert operating.differences() == []


def delivered(operating: Running) -> dict[str, int]:
    """Return how many requests the receiver took of each rule."""
    return {name: len(operating.requests(f"/healthy/{name}")) for name in ("invoices", "accounts")}
