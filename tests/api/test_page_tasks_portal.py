"""The task "hand a partner a link": an operator finds the command on the page, and a partner uses what it prints."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from api.server import Installation, Server, order
from api.windows import log_in, open_chromium
from playwright.sync_api import Browser, expect
from services.axe import fetch_axe

AXE = fetch_axe()
RULES = """
rules:
  shop-orders: {{owner: shop, bus: orders, pattern: {{type: [shop.placed]}},
                 targets: {{log: {{type: file, path: "{folder}/shop.jsonl"}}}}}}
"""


class Site(BaseHTTPRequestHandler):
    """The site of a partner: the path of each page is the address that it frames, quoted by `#` as `!`."""

    def do_GET(self) -> None:
        """Return a page with an iframe."""
        body = f'<iframe src="{self.path[1:].replace("!", "#")}" width="1000" height="800"></iframe>'.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """The port of a site of a partner."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, site: int) -> Iterator[Server]:
    """A server with an event of the owner shop, and one that only a rule of others matched."""
    folder = tmp_path_factory.mktemp("shop")
    made = Installation(folder, EVENTBRIDGE_PORTAL_ORIGINS=f"http://localhost:{site}")
    (folder / "rules" / "shop.yaml").write_text(RULES.format(folder=folder))
    events = [order(1, id="shop-1", type="shop.placed"), order(2, id="other-1", type="other.placed")]
    (folder / "events.jsonl").write_text("\n".join(json.dumps(each) for each in events))
    made.run("events", "publish", "orders", str(folder / "events.jsonl"))
    made.deliver("orders")
    with Server(made) as running:
        made.environ["EVENTBRIDGE_PORTAL_URL"] = running.url
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser, whose contexts know nothing of each other."""
    with open_chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def link(shop: Server, chromium: Browser) -> str:
    """The link that an operator makes: the page of a rule has the command, which prints it."""
    with closing(chromium.new_context()) as context:
        page = context.new_page()
        log_in(page, shop.url, shop.installation.token("operator", "read"))
        page.get_by_role("link", name="Rules", exact=True).click()
        page.get_by_role("link", name="shop-orders").first.click()
        page.get_by_text("Hand a partner a link").click()
        command = page.locator("pre", has_text="eventbridge tokens create").inner_text()
    program, *words = shlex.split(command)
    assert program == "eventbridge"
    return shop.installation.run(*words).strip()


def test_a_partner_opens_the_link(link: str, chromium: Browser) -> None:
    """In a browser of its own: the token leaves the address, and the owner's event is found, with why it was sent."""
    with closing(chromium.new_context()) as context:
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url + str(request.headers.get("referer"))))
        page.goto(link)
        expect(page.get_by_role("heading", name="shop", exact=True)).to_be_visible()
        address = page.url
        page.get_by_role("link", name="Events").click()
        page.get_by_role("link", name="shop-1").click()
        expect(page.get_by_text("matched")).to_be_visible()
        names = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
        page.goto(f"{address}/events?bus=orders")
        expect(page.get_by_text("other-1")).to_have_count(0)
        page.goto(f"{address}/batches")
        expect(page.get_by_role("alert")).to_contain_text("The portal has no page")
        session = [each for each in context.cookies() if each["name"] == "eventbridge_portal"]

    secret = link.partition("#")[2]
    assert "#" not in address
    assert names == ["Overview", "Events", "Targets", "Dead letters", "Rules"]
    assert [each for each in asked if secret in each and not each.startswith(link)] == []
    assert [(each["httpOnly"], each["path"]) for each in session] == [(True, "/portal/page")]


def test_an_allowed_site_embeds_the_portal(link: str, site: int, chromium: Browser) -> None:
    """Over HTTPS, as a proxy says here, the session lives within the other site; no other site can frame the portal."""
    with closing(chromium.new_context(extra_http_headers={"x-forwarded-proto": "https"})) as context:
        page = context.new_page()
        page.goto(f"http://localhost:{site}/{link.replace('#', '!')}")
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", name="shop", exact=True)).to_be_visible()
        frame.get_by_role("link", name="Dead letters").click()
        expect(frame.get_by_text("Every delivery was made")).to_be_visible()
        (cookie,) = (each for each in context.cookies() if each["name"] == "eventbridge_portal")
        page.goto(f"http://127.0.0.1:{site}/{link.replace('#', '!')}")
        blocked = page.frames[1].url

    assert (cookie["sameSite"], cookie["secure"]) == ("None", True)
    assert blocked.startswith("chrome-error:")


def test_no_page_of_the_portal_has_a_serious_accessibility_fault(shop: Server, chromium: Browser) -> None:
    """In light and, at 400 pixels, in dark; none is wider than the window, or larger than 60 KB."""
    link = shop.installation.run("tokens", "create", "--owner", "shop", "--portal", "--ttl", "1h", "--scope", "operate")
    paths = ["", "/events", "/event?id=shop-1", "/targets", "/targets/shop-orders/log", "/rules", "/rules/shop-orders"]
    paths += ["/rules/shop-orders/test", "/targets/shop-orders/log/try", "/dead-letters", "/redrives", "/open"]
    faults = []
    for scheme, width in (("light", 1280), ("dark", 400)):
        size = {"width": width, "height": 800}
        with closing(chromium.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)) as context:
            page = context.new_page()
            page.goto(link.strip())
            expect(page.get_by_role("heading", name="shop", exact=True)).to_be_visible()
            for path in paths:
                response = page.goto(f"{shop.url}/portal/page{path}")
                assert response is not None
                assert (path, response.status) == (path, 200)
                page.evaluate(AXE.read_text())
                found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
                serious = [each["id"] for each in found if each["impact"] in ("serious", "critical")]
                is_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
                if serious or is_wide or len(response.body()) > 60_000:
                    faults.append((path, scheme, serious, is_wide, len(response.body())))
    assert faults == []
