"""Tasks of an operator who has never seen the page, with events and dead letters: by what is written on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from api.server import Server
from api.shop import shop_server
from api.windows import log_in, open_chromium
from playwright.sync_api import Browser, Page, Request, expect


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of the shop."""
    with shop_server(tmp_path_factory.mktemp("shop")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def token(shop: Server) -> str:
    """The token of an operator."""
    return shop.installation.token("operator", "read", "payloads", "operate", "publish:orders")


@pytest.fixture
def window(shop: Server, chromium: Browser, token: str) -> Iterator[Page]:
    """A window with the overview, logged in."""
    with closing(chromium.new_page(viewport={"width": 1280, "height": 800})) as page:
        log_in(page, shop.url, token)
        yield page


def open_event(window: Page, name: str) -> None:
    """Open the page of an event from the list of events."""
    window.get_by_role("link", name="Events", exact=True).click()
    window.get_by_role("link", name=name, exact=True).click()
    expect(window.get_by_role("heading", name=name)).to_be_visible()


def test_a_failed_event_is_found_with_the_reason(window: Page) -> None:
    """By its status; the page says at which target it failed, and shows the response beside the request."""
    window.get_by_role("link", name="Events", exact=True).click()
    window.get_by_label("Status").select_option("dead-lettered")
    window.get_by_role("button", name="Find").click()
    expect(window.locator("tbody tr")).to_have_count(2)
    window.get_by_role("link", name="refund-1").click()

    row = window.get_by_role("row").filter(has_text="refunds / ledger")
    expect(row).to_contain_text("dead-lettered")
    expect(row).to_contain_text("non_retryable")
    window.get_by_role("listitem").filter(has_text="refunds / ledger attempt 1 400").get_by_text(
        "request and response"
    ).click()
    request, response = (window.locator("section.card").filter(has_text=each) for each in ("as rendered", "1 attempt"))
    expect(request.locator("pre")).to_contain_text('"refund-1"')
    expect(response).to_contain_text("HTTP 400")


def test_a_rule_says_why_it_did_not_match(window: Page) -> None:
    """The conditions that failed are on the page of the event; any other rule can be asked for."""
    open_event(window, "o3")
    expect(window.get_by_text("3 does not meet")).to_be_visible()

    window.get_by_label("Why did a rule not match?").fill("refunds")
    window.get_by_role("button", name="Ask").click()
    expect(window.get_by_text('"order.placed" does not meet ["order.refunded"]')).to_be_visible()
    expect(window.get_by_text("3 does not meet")).to_have_count(0)


def test_one_event_is_resent(shop: Server, window: Page) -> None:
    """One small confirmation says what will be sent, and the next page whether it was."""
    archive = Path(shop.installation.folder, "archive.jsonl")
    before = archive.read_text().count('"o3"')
    open_event(window, "o3")
    row = window.get_by_role("row").filter(has_text="all-orders / archive")
    row.get_by_text("Resend", exact=True).click()
    expect(row.get_by_text("Send this event to all-orders / archive once more?")).to_be_visible()
    row.get_by_role("button", name="Resend now").click()
    expect(window.get_by_role("heading", name="Replay")).to_be_visible()
    shop.installation.replay(window.url.rpartition("/")[2])

    assert archive.read_text().count('"o3"') == before + 1
    window.get_by_role("link", name="Events", exact=True).click()
    expect(window.get_by_role("row").filter(has_text="o3").get_by_role("link", name="replayed")).to_be_visible()


def test_a_cause_is_redriven(shop: Server, window: Page) -> None:
    """The button counts what is chosen; preview and progress follow; then they are in the tab of the redriven."""
    window.get_by_role("link", name="Dead letters").click()
    expect(window.get_by_role("button", name="Redrive 2 ...")).to_be_visible()
    window.get_by_role("link", name="All", exact=True).click()
    window.get_by_role("checkbox").first.check()
    expect(window.get_by_role("button", name="Redrive 1 ...")).to_be_visible()
    window.get_by_role("link", name="By cause").click()
    window.get_by_role("checkbox").check()
    window.get_by_role("button", name="Redrive 2 ...").click()
    expect(window.get_by_text("refunds/ledger: non_retryable HTTP 400")).to_be_visible()
    expect(window.get_by_role("row", name="refunds/ledger 2")).to_be_visible()
    window.get_by_role("button", name="Start redrive of 2").click()

    expect(window.get_by_text("running", exact=True)).to_be_visible()
    shop.installation.redrive(window.locator("td.name").first.inner_text())
    expect(window.get_by_text("2 dead-lettered")).to_be_visible()  # without a click: the page is live
    window.get_by_role("link", name="Dead letters").first.click()
    window.get_by_role("link", name="Redriven 2").click()
    expect(window.get_by_role("row").filter(has_text="refunds / ledger")).to_contain_text("2")


def test_the_keyboard_reaches_redrive_within_twelve_tabs(shop: Server, window: Page) -> None:
    """By the link that skips the menu, which is the first."""
    window.goto(f"{shop.url}/page/dead-letters")
    window.keyboard.press("Tab")
    window.keyboard.press("Enter")
    tabs = 1
    while (
        not window.get_by_role("button", name="Redrive 2 ...").evaluate("(button) => button === document.activeElement")
        and tabs <= 12
    ):
        window.keyboard.press("Tab")
        tabs += 1
    window.keyboard.press("Enter")

    expect(window.get_by_role("heading", name="Redrive dead letters")).to_be_visible()
    assert tabs <= 12


def test_rows_are_chosen_by_keys_and_shown_beside_the_list(shop: Server, window: Page) -> None:
    """j and k choose a row, its head is shown in the pane, Enter opens it; keys in a field are text."""
    window.goto(f"{shop.url}/page/events?bus=orders")
    names = window.locator("tbody tr td:first-child").all_inner_texts()
    window.keyboard.press("j")
    window.keyboard.press("j")
    expect(window.locator("#preview h1")).to_contain_text(names[1])
    window.keyboard.press("k")
    expect(window.locator("#preview h1")).to_contain_text(names[0])
    expect(window.locator("#preview").get_by_role("heading", name="Deliveries")).to_be_visible()
    expect(window.locator("tr[aria-selected=true]")).to_have_count(1)
    window.locator("tbody tr").nth(2).locator("td").nth(4).click()
    expect(window.locator("#preview h1")).to_contain_text(names[2])

    window.get_by_label("Type", exact=True).press_sequentially("jk")
    expect(window.get_by_label("Type", exact=True)).to_have_value("jk")
    window.keyboard.press("Escape")
    window.keyboard.press("k")
    window.keyboard.press("Enter")
    expect(window.get_by_role("heading", name=names[1])).to_be_visible()


def test_the_search_box_takes_ids_and_terms(shop: Server, window: Page) -> None:
    """A slash focuses it; Escape leaves it; the page of what is named follows."""
    for text, heading in (
        ("refund-0", "refund-0"),
        ("refunds / ledger", "refunds / ledger"),
        ("type:cart.emptied", "Events"),
    ):
        window.keyboard.press("/")
        expect(window.locator(".search input")).to_be_focused()
        window.keyboard.type(text)
        window.keyboard.press("Enter")
        expect(window.get_by_role("heading", name=heading, exact=False).first).to_be_visible()
    expect(window.locator("tbody tr")).to_have_count(1)
    window.keyboard.press("/")
    window.keyboard.press("Escape")
    expect(window.locator(".search input")).not_to_be_focused()


def test_an_act_is_confirmed_by_a_toast_that_undoes_it(shop: Server, window: Page) -> None:
    """The text is the page's own, and Undo does the opposite act."""
    window.goto(f"{shop.url}/page/rules/all-orders")
    window.get_by_role("button", name="Pause", exact=True).click()
    expect(window.locator("#toast")).to_contain_text("The rule is paused. Its deliveries wait.")
    window.locator("#toast").get_by_role("button", name="Undo").click()
    expect(window.locator("#toast")).to_contain_text("The rule is resumed.")

    window.goto(f"{shop.url}/page/rules/all-orders?done=<b>owned</b>")
    expect(window.get_by_role("heading", name="all-orders")).to_be_visible()
    expect(window.locator("#toast")).to_have_count(0)


def test_an_event_that_lands_is_shown_without_a_click(shop: Server, window: Page) -> None:
    """While the list is live, and until it is stopped."""
    window.goto(f"{shop.url}/page/events?bus=orders")
    window.get_by_role("link", name="Live", exact=True).click()
    expect(window.get_by_role("link", name="Stop live")).to_be_visible()
    window.get_by_role("heading", name="Events").click()  # nothing in the list has the focus
    lines = shop.installation.folder / "late.jsonl"
    lines.write_text('{"specversion": "1.0", "id": "late", "source": "/shop", "type": "order.placed"}')
    shop.installation.run("events", "publish", "orders", str(lines))
    shop.installation.deliver("orders")

    expect(window.get_by_role("link", name="late", exact=True)).to_be_visible()
    window.get_by_role("link", name="Stop live").click()
    expect(window.get_by_role("link", name="Live", exact=True)).to_be_visible()


def test_a_page_costs_its_style_sheet_and_its_script(shop: Server, window: Page) -> None:
    """Nothing else is requested, not even for the icon, which the content security policy allows."""
    requests: list[Request] = []
    errors: list[str] = []
    window.on("request", lambda each: requests.append(each))
    window.on("console", lambda message: errors.append(message.text))
    window.goto(f"{shop.url}/page/dead-letters")
    window.wait_for_load_state("networkidle")
    icon = window.locator("link[rel=icon]").get_attribute("href")
    shown = window.evaluate(
        "(href) => new Promise((end) => { const image = new Image();"
        " image.onload = () => end(image.naturalWidth > 0); image.onerror = () => end(false); image.src = href; })",
        icon,
    )

    asked = [each.url.removeprefix(shop.url) for each in requests if not each.url.startswith("data:")]
    assert asked == ["/page/dead-letters", "/page/style.css", "/page/page.js"]
    assert (shown, errors) == (True, [])
