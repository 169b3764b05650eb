"""The page shows the data of the API to a browser that is logged in, and escapes everything of an event."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta

import httpx
import pytest
from api.pages import pages_of, without_own_scripts
from api.server import Server
from api.windows import open_chromium
from msgspec import json
from playwright.sync_api import Browser, Page, expect
from services.axe import fetch_axe

from eventbridge.api.app import create_mounted_app
from eventbridge.api.page.session import TokenGate
from eventbridge.backtest.running import RunningBacktest, recorded_progress
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.model.form_labels import AS_OF_LABELS, IDS_LABELS, REDRIVE_LABELS, REPLAY_LABELS
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.store.layout import RUNNING_BACKTESTS

AXE = fetch_axe()
FORMS = ["login", "logout"]
#: A text of each page.
WANTED = {
    "": "Every event accounted for",
    "/actions": "POST /v1/replays",
    "/api": "/v1/dead-letters/{name}",
    "/backtest": "archived events",
    "/backtests": ">refused</a>",
    "/backtests/{backtest_id}": "Would be sent: 1",
    "/batches": "committed",
    "/batches/{batch_id}": "every event of this batch is accounted for",
    "/batches/{batch_id}/chunks/{chunk_id}": "dead-lettered",
    "/buses": "up to date",
    "/dead-letters": "malformed",
    "/dead-letters/{name:path}": "ConnectionRefused",
    "/errors": "scope_required",
    "/event": "dead-lettered",
    "/events": "o1",
    "/redrive": "refused/crm",
    "/redrives": "Redrives",
    "/replay": "would be replayed",
    "/replays": "cancelled",
    "/replays/{replay_id}": "refused",
    "/request": "curl -X POST",
    "/rules": "refused",
    "/rules/{name}": "nowhere",
    "/rules/{name}/test": "Event of the bus",
    "/schemas": "order.placed",
    "/schemas/{type:path}": 'data.amount</td><td data-name="Types">integer</td>',
    "/targets": "crm",
    "/targets/{rule}/{name}": "ConnectionRefused",
    "/targets/{rule}/{name}/try": "You have read-only access",
}
#: The numbers of the sentence that accounts for events.
_ACCOUNTED = (
    r"(\d+) of (\d+) events accounted for: (\d+) valid, (\d+) duplicates, (\d+) malformed, (\d+) tombstones, "
    r"(\d+) gaps"
)
#: Finds notices in tables that cannot be read without scrolling sideways.
NOTICES_BEYOND = """[...document.querySelectorAll("td:first-child[colspan]")].filter((cell) => {
  const text = document.createRange();
  text.selectNodeContents(cell);
  return text.getBoundingClientRect().right > innerWidth;
}).map((cell) => cell.textContent)"""
#: Pages that show the event with markup in its fields; they have to show it as text.
HOSTILE = {
    *("/backtests/{backtest_id}", "/dead-letters/{name:path}", "/event", "/request"),
    *("/rules/{name}/test", "/schemas/{type:path}"),
}


@contextmanager
def logged_in(server: Server, name: str) -> Iterator[httpx.Client]:
    """Open a browser that is logged in."""
    token = server.installation.token(name, "read", "payloads")
    with server.client() as browser:
        browser.post("/page/login", data={"token": token})
        yield browser


def test_every_page_shows_its_subject(delivered: Server) -> None:
    """No page needs a script, only EventBridge's own are on it, none is cached, and the keyboard reaches everything."""
    with logged_in(delivered, "viewer") as browser:
        pages = {route: browser.get(f"/page{path}") for route, path in pages_of(delivered).items()}
        other = browser.get("/page/event?id=o1").text
        lag = browser.get("/page/lag.json").json()

    assert 'aria-label="not met"' in other
    assert [each["bus"] for each in lag["buses"]] == ["orders"]
    assert {page.status_code for page in pages.values()} == {200}
    assert [route for route, page in pages.items() if WANTED[route] not in page.text] == []
    assert all("default-src 'none'" in page.headers["content-security-policy"] for page in pages.values())
    assert all(page.headers["cache-control"] == "no-store" for page in pages.values())
    texts = {route: without_own_scripts(page.text) for route, page in pages.items()}
    assert [route for route, text in texts.items() if re.search(r'<script|<[^>]* on\w+=|tabindex="[1-9]', text)] == []


def test_the_address_of_the_server_leads_to_the_page(delivered: Server) -> None:
    """Anyone who opens the address that `serve` prints in a browser gets the page, or its login."""
    with delivered.client() as browser:
        response = browser.get("/", follow_redirects=False)

    assert (response.status_code, response.headers["location"]) == (303, "page")


def test_the_reconciliation_of_the_overview_adds_up(delivered: Server) -> None:
    """Every term of both equations is on the page, so that a reader can add the lines of both sides."""
    with logged_in(delivered, "adder") as browser:
        page = browser.get("/page").text
    terms = re.findall(r"<b[^>]*>([\d,]+)</b><span[^>]*>([\w-]+)</span>", page)
    (due, _), *ended = [(int(count.replace(",", "")), name) for count, name in terms]
    parts = re.search(r"Due are (\d+) pending at midnight, (\d+) matched today, and (\d+) redriven", page)
    accounted, moved, *kinds = map(int, re.search(_ACCOUNTED, page).groups())  # type: ignore[union-attr]

    assert [name for _, name in ended] == ["delivered", "pending", "dead-lettered"]
    assert sum(count for count, _ in ended) == due == sum(map(int, parts.groups())) > 0  # type: ignore[union-attr]
    assert sum(kinds) == accounted == moved > 0


def test_a_payload_is_shown_as_text(delivered: Server) -> None:
    """HTML within an event is text on every page that shows it, and markup on none."""
    with logged_in(delivered, "careful") as browser:
        pages = {route: browser.get(f"/page{path}").text for route, path in pages_of(delivered).items()}

    assert {route for route, page in pages.items() if "&lt;script&gt;alert(1)&lt;/script&gt;" in page} == HOSTILE
    assert [route for route, page in pages.items() if "<script" in without_own_scripts(page) or "<img" in page] == []


def test_every_link_has_the_base_path(delivered: Server) -> None:
    """If another server mounts the page below a path, every link, form and file is below that path."""
    env = delivered.installation.env
    token = delivered.installation.token("mounted", "read", "payloads", "operate")

    def opened() -> Runtime:
        return open_runtime(Settings.from_mapping(env), connections_from_environment(env))

    async def asked() -> dict[str, httpx.Response]:
        app = create_mounted_app(opened, TokenGate())
        transport = httpx.ASGITransport(app, root_path="/af/eventbridge")
        cookies = {"eventbridge_token": token}
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow", cookies=cookies) as browser:
            found = {route: await browser.get(f"/page{path}") for route, path in pages_of(delivered).items()}
        app.state.runtime.close()
        return found

    with ThreadPoolExecutor(1) as threads:  # an open browser has an event loop in this thread
        pages = threads.submit(asyncio.run, asked()).result()

    assert {page.status_code for page in pages.values()} == {200}
    for route, page in pages.items():
        links = re.findall(r'(?:href|src|action|formaction)="([^"]*)"', page.text)
        assert len(links) > 10, route
        assert [link for link in links if not link.startswith(("/af/", "?", "#", "data:image/"))] == [], route


def test_without_login_only_the_form_is_shown(delivered: Server) -> None:
    """Every page asks for a token; a token that may only publish is refused; no script can read the cookie."""
    writer, reader = (
        delivered.installation.token("writer", "publish:orders"),
        delivered.installation.token("reader", "read"),
    )
    with delivered.client() as browser:
        asked = [browser.get(f"/page{path}") for path in pages_of(delivered).values()]
        refused = browser.post("/page/login", data={"token": writer})
        taken = browser.post("/page/login", data={"token": reader})

    assert {(page.status_code, "orders" in page.text) for page in asked} == {(401, False)}
    assert (refused.status_code, "has no scope read" in refused.text) == (401, True)
    assert "set-cookie" not in refused.headers
    cookie = taken.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/page"))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_a_form_of_another_site_changes_nothing(headers: dict[str, str], delivered: Server) -> None:
    """It neither logs in nor out, whichever header the browser sends."""
    with delivered.client() as browser:
        responses = [browser.post(f"/page/{form}", data={"token": "ebt_x"}, headers=headers) for form in FORMS]

    assert [response.status_code for response in responses] == [403, 403]
    assert not any("set-cookie" in response.headers for response in responses)


def test_a_form_may_come_through_a_proxy_with_another_host(delivered: Server) -> None:
    """The browser's statement of the same origin is trusted."""
    token = delivered.installation.token("proxied", "read")
    headers = {"origin": "https://events.example", "sec-fetch-site": "same-origin"}
    with delivered.client() as browser:
        response = browser.post("/page/login", data={"token": token}, headers=headers)

    assert (response.status_code, response.headers["location"]) == (303, "/page")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture
def window(delivered: Server, chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window with the login form; scripts are off unless the test turns them on."""
    scripts = getattr(request, "param", False)
    with closing(chromium.new_page(viewport={"width": 1100, "height": 760}, java_script_enabled=scripts)) as page:
        page.goto(f"{delivered.url}/page")
        yield page


def test_an_operator_finds_a_failed_event_and_sees_why(delivered: Server, window: Page) -> None:
    """Without scripts: from the dead letters to the event, its rules and attempts, and to the reconciliation of its
    batch.
    """
    window.get_by_label("Token").fill(delivered.installation.token("operator", "read", "payloads"))
    window.get_by_role("button", name="Log in").click()
    expect(window.get_by_role("heading", name="Overview")).to_be_visible()

    window.get_by_role("link", name="Dead letters").click()
    window.get_by_label("Reason").select_option("maximum_retry_attempts")
    window.get_by_role("button", name="Find").click()
    window.get_by_role("link", name="Show").first.click()
    window.get_by_role("link", name="o2").click()
    expect(window.get_by_role("cell", name="dead-lettered").first).to_be_visible()
    window.get_by_role("link", name="Rules").first.click()
    window.get_by_role("link", name="refused").click()
    expect(window.get_by_text("numeric").first).to_be_visible()

    window.get_by_role("link", name="Batches").click()
    window.locator("td.name a").first.click()
    expect(window.get_by_text("every event of this batch is accounted for")).to_be_visible()


@pytest.mark.parametrize("window", [True], indirect=True, ids=["scripts"])
def test_no_page_has_a_serious_accessibility_fault(delivered: Server, window: Page) -> None:
    """In light and in dark; in 360 pixels no page and no notice is too wide; the menu works by keyboard."""
    window.get_by_label("Token").fill(delivered.installation.token("axe", "read", "payloads", "operate"))
    window.keyboard.press("Enter")
    expect(window.get_by_role("heading", name="Overview")).to_be_visible()
    faults: list[str] = []
    for scheme, width in (("light", 1100), ("dark", 360)):
        window.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        window.set_viewport_size({"width": width, "height": 760})
        for path in pages_of(delivered).values():
            window.goto(f"{delivered.url}/page{path}")
            window.evaluate(AXE.read_text())
            found = window.evaluate("axe.run({resultTypes: ['violations']})")
            faults += [
                f"{path}, {scheme}: {each['id']}, {each['nodes'][0]['html'][:200]}"
                for each in found["violations"]
                if each["impact"] in ("serious", "critical")
            ]
            if window.evaluate("document.documentElement.scrollWidth > innerWidth"):
                faults.append(f"{path}, {scheme}: wider than {width} pixels")
            faults += [f"{path}, {scheme}: beyond {width} pixels: {each}" for each in window.evaluate(NOTICES_BEYOND)]
    assert faults == []

    window.goto(f"{delivered.url}/page/rules")
    for _ in range(4):  # past the link that skips the menu, to the third page
        window.keyboard.press("Tab")
    window.keyboard.press("Enter")
    expect(window.get_by_role("heading", name="Targets", exact=True)).to_be_visible()


def test_forms_have_the_labels_of_the_forms_in_airflow(delivered: Server) -> None:
    """The page and the forms of DAGs take each label of a replay and of a redrive from the same list."""
    token = delivered.installation.token("repairer", "read", "payloads", "operate")
    with delivered.client() as browser:
        browser.post("/page/login", data={"token": token})
        replay, redrive, letters = (
            browser.get(f"/page{path}").text for path in ("/replay", "/redrive?rule=refused", "/dead-letters")
        )

    values = (*AS_OF_LABELS.values(), *IDS_LABELS.values())
    assert [each for each in (*REPLAY_LABELS.values(), *values) if each not in replay] == []
    assert [each for each in REDRIVE_LABELS.values() if each not in redrive + letters] == []


def test_the_progress_of_a_running_backtest_is_shown(delivered: Server) -> None:
    """The list of backtests has its candidate, a bar and the events read; it refreshes itself only meanwhile."""
    with delivered.installation.opened() as runtime, logged_in(delivered, "waiting") as browser:
        with recorded_progress(runtime, "refused") as progress:
            begun = browser.get("/page/backtests").text
            at = runtime.ledger.now() - timedelta(seconds=10)
            (path,) = runtime.store.list(RUNNING_BACKTESTS)
            runtime.store.put(path, json.encode(RunningBacktest("refused", at, at + timedelta(seconds=5), 500, 2_000)))
            during = browser.get("/page/backtests").text
            progress(2_000, 2_000)
        ended = browser.get("/page/backtests").text

    assert "The first events are being read" in begun
    assert 'role="progressbar" aria-valuenow="25"' in during
    assert "25 %, 500 of 2,000 archived events, 100.0 a second, about 15.0 s left" in during
    assert ['id="live"' in each for each in (begun, during, ended)] == [True, True, False]
