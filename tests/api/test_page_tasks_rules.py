"""Tasks of rules and targets in a browser, by somebody who sees the page for the first time: visible text only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from api.server import Installation, Server, order
from api.windows import log_in, open_chromium
from demo.receiver import ADDRESSES, Receiver
from playwright.sync_api import Browser, Page, expect

from eventbridge.control.backtest import read_candidate
from eventbridge.control.overrides import operate
from eventbridge.event.json_document import Number

RULES = """
rules:
  big-orders:
    bus: orders
    pattern: {type: [order.placed], data: {amount: [{numeric: [">", 1000]}]}}
    targets:
      partner: {type: http, url: "URL/healthy/partner", allow_http: true, transform: {form: JSONPATH, value: $.data}}
  every-order:
    bus: orders
    pattern: {type: [order.placed]}
    targets:
      stock: {type: file, path: FOLDER/stock.jsonl}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose installation has delivered three orders, one of them over 1,000."""
    folder = tmp_path_factory.mktemp("shop")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES=ADDRESSES)
    events = [order(number, data={"amount": amount}) for number, amount in enumerate((5, 600, 2_000))]
    (folder / "orders.jsonl").write_text("\n".join(map(json.dumps, events)))
    with Receiver(folder / "requests.jsonl") as receiver:
        rules = RULES.replace("URL", receiver.url("").rstrip("/")).replace("FOLDER", str(folder))
        (folder / "rules" / "shop.yaml").write_text(rules)
        made.run("events", "publish", "orders", str(folder / "orders.jsonl"))
        made.deliver("orders")
        with Server(made) as running:
            yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture
def window(shop: Server, chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window of an operator, named by the test."""
    context = chromium.new_context(
        viewport={"width": 1280, "height": 800}, java_script_enabled=getattr(request, "param", True)
    )
    page = context.new_page()
    token = shop.installation.token(
        f"op-{request.node.originalname}"[:60], "read", "payloads", "operate", "publish:orders"
    )
    log_in(page, shop.url, token)
    yield page
    context.close()


def playground(window: Page) -> None:
    """Open the playground of the rule big-orders."""
    window.get_by_text("Rules", exact=True).click()
    window.get_by_text("big-orders", exact=True).click()
    window.get_by_text("Open in the playground").click()


def test_a_pattern_is_fixed_in_the_playground(shop: Server, window: Page) -> None:
    """The result and the request follow each change, and the changed rule can be copied; nothing is sent."""
    sent = Path(shop.installation.folder, "requests.jsonl").read_text()
    playground(window)
    window.get_by_label("Event of the bus").select_option(label=_label_of(window, "o1"))
    expect(window.get_by_text("The pattern does not match")).to_be_visible()
    expect(window.get_by_text("600 does not meet")).to_be_visible()

    window.get_by_label("Pattern, as in").fill("type: [order.placed]\ndata: {amount: [{numeric: ['>', 500]}]}")
    expect(window.get_by_text("The pattern matches")).to_be_visible()
    expect(window.get_by_text("600 meets")).to_be_visible()
    window.get_by_label("Transform of partner").fill("form: TEMPLATE\nvalue: {a: $.data.amount}\ntemplate: 'sum ${a}'")
    expect(window.get_by_text("sum 600")).to_contain_text("POST http://127.0.0.1")
    expect(window.get_by_text("Copy as YAML")).to_be_visible()
    expect(window.get_by_text("eventbridge rules diff big-orders candidate.yaml --from 1d")).to_be_visible()
    with shop.installation.opened() as runtime:
        kept = read_candidate(runtime, window.get_by_text("rules: big-orders:").inner_text()).rules.rules["big-orders"]

    assert (kept.pattern["data"], kept.targets["partner"].transform.form) == (
        {"amount": [{"numeric": [">", Number("500")]}]},
        "TEMPLATE",
    )
    assert Path(shop.installation.folder, "requests.jsonl").read_text() == sent


def test_what_is_typed_is_tested_once_the_typing_pauses(window: Page) -> None:
    """Twenty keys make one call; an error has its line and path, and a later correction replaces it."""
    playground(window)
    window.get_by_label("Event of the bus").select_option(label=_label_of(window, "o2"))
    expect(window.get_by_text("The pattern matches")).to_be_visible()
    calls: list[str] = []
    window.on("request", lambda request: calls.append(request.url) if request.method == "POST" else None)
    window.get_by_label("Transform of partner").fill("")
    window.get_by_label("Transform of partner").press_sequentially("form: CONSTAN\nvalue: 7", delay=5)
    expect(window.get_by_text("This is not a transform: line 1, $.form: there is no form 'CONSTAN'")).to_be_visible()
    assert len(calls) == 1

    window.get_by_label("Transform of partner").fill("form: CONSTANT\nvalue: seven")
    expect(window.get_by_text("content-type")).to_contain_text("seven")
    expect(window.get_by_text("This is not a transform")).not_to_be_visible()
    assert len(calls) == 2


@pytest.mark.parametrize("window", [False], indirect=True, ids=["no scripts"])
def test_the_playground_works_by_its_button(window: Page) -> None:
    """Without scripts: the newest event is shown first; another is tested, and the fields keep their text."""
    playground(window)
    newest = window.get_by_label("Event of the bus").locator("option").nth(1).get_attribute("value")
    expect(window.get_by_label("Event of the bus")).to_have_value(str(newest))
    expect(window.get_by_label("Event, one CloudEvent")).to_have_value(re.compile(f'"id": "{newest}"'))
    window.get_by_label("Event of the bus").select_option(label=_label_of(window, "o2"))
    window.get_by_label("Pattern, as in").fill("type: [order.paid]")
    window.get_by_text("Test", exact=True).click()

    expect(window.get_by_text("The pattern does not match")).to_be_visible()
    expect(window.get_by_label("Pattern, as in")).to_have_value("type: [order.paid]")
    expect(window.get_by_label("Event, one CloudEvent")).to_have_value(re.compile('"id": "o2"'))


def test_a_partner_is_paused(shop: Server, window: Page) -> None:
    """The button says what will happen, and the page what happened; Undo resumes it."""
    window.get_by_text("Targets", exact=True).click()
    window.get_by_text("big-orders / partner").click()
    expect(window.get_by_text("healthy")).to_be_visible()
    expect(window.get_by_role("img", name="Responses")).to_be_visible()
    expect(window.get_by_text("deliveries wait, and none is lost")).to_be_visible()
    window.get_by_text("Pause", exact=True).click()
    expect(window.get_by_text("The target is paused. Its deliveries wait.")).to_be_visible()
    expect(window.get_by_text(re.compile("^Paused since .* by op-"))).to_be_visible()
    expect(window.get_by_text("paused by an operator")).to_be_visible()
    with shop.installation.opened() as runtime:
        assert [(each.rule, each.target, each.kind) for each in runtime.ledger.overrides.all()] == [
            ("big-orders", "partner", "paused")
        ]

    window.get_by_text("Undo").click()
    expect(window.get_by_text("The target is resumed.")).to_be_visible()
    with shop.installation.opened() as runtime:
        assert runtime.ledger.overrides.all() == []


def test_the_reader_finds_who_paused_a_rule(shop: Server, window: Page) -> None:
    """The list of rules shows the state, the rule names who set it, and the audit log has the call."""
    with shop.installation.opened() as runtime:
        operate(runtime, "pause rule", "every-order", by="maria")
    try:
        window.get_by_text("Rules", exact=True).click()
        expect(window.get_by_role("row", name="every-order").get_by_text("paused")).to_be_visible()
        window.get_by_text("every-order", exact=True).click()
        expect(window.get_by_text("by maria")).to_be_visible()
    finally:
        with shop.installation.opened() as runtime:
            operate(runtime, "resume rule", "every-order")


def test_a_new_event_appears_on_the_overview(shop: Server, window: Page) -> None:
    """By itself, because the page asks every two seconds; the reader keeps the place on the page."""
    expect(window.get_by_text("Every event accounted for")).to_be_visible()
    window.evaluate("scrollTo(0, 150)")
    event = Path(shop.installation.folder, "more.json")
    event.write_text(json.dumps(order(9)))
    before = int(window.get_by_text("events accounted for").inner_text().split(" of ")[0].replace(",", ""))
    shop.installation.run("events", "publish", "orders", str(event))
    shop.installation.deliver("orders")
    expect(window.get_by_text(f"{before + 1} of {before + 1} events accounted for")).to_be_visible()
    assert window.evaluate("scrollY") == 150


def test_a_list_is_cards_on_a_phone(shop: Server, window: Page) -> None:
    """At 400 pixels, the head of a table is out of sight, however wide it is, and the page is not wider."""
    window.set_viewport_size({"width": 400, "height": 800})
    for path in ("/targets", "/rules", ""):
        window.goto(f"{shop.url}/page{path}")
        heads = window.evaluate(
            "[...document.querySelectorAll('table.list thead')].map(e => e.getBoundingClientRect().right)"
        )
        assert heads
        assert max(heads) <= 0
        assert window.evaluate("document.documentElement.scrollWidth") <= 400


def _label_of(window: Page, event_id: str) -> str:
    labels = window.get_by_label("Event of the bus").locator("option").all_inner_texts()
    return next(each for each in labels if f", {event_id}," in each)
