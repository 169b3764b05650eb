"""An operator's way in the browser from a failed event to a reconciled batch; outside of it, only the rule's file is
edited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from api.server import Installation, Server
from api.windows import log_in, open_chromium
from demo.receiver import ADDRESSES, Receiver
from playwright.sync_api import Browser, Page, expect

from eventbridge.api.payloads import HIDDEN

RULE = """
rules:
  letters:
    bus: orders
    pattern: {type: [letter.written], data: {kind: [private]}}
    targets:
      post: {type: file, path: FOLDER/post.jsonl, transform: {form: JSONPATH, value: $.data.adress, missing: error}}
  notices:
    bus: orders
    pattern: {type: [letter.written]}
    targets:
      desk: {type: http, url: "URL", allow_http: true}
"""
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=alert(1)>"


def letter(number: int) -> dict[str, object]:
    """Return an event whose address the rule delivers."""
    data = {"kind": "private", "address": f"Long Street {number}", "text": HOSTILE}
    return {"specversion": "1.0", "id": f"letter-{number}", "source": "/desk", "type": "letter.written", "data": data}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose installation has dead-lettered three deliveries of one rule, and delivered them for another."""
    folder = tmp_path_factory.mktemp("desk")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES=ADDRESSES)
    (folder / "letters.jsonl").write_text("\n".join(json.dumps(letter(number)) for number in range(3)))
    with Receiver(folder / "requests.jsonl") as receiver:
        rule = RULE.replace("FOLDER", str(folder)).replace("URL", receiver.url(f"/say/{quote(HOSTILE, safe='')}"))
        (folder / "rules" / "letters.yaml").write_text(rule)
        made.run("events", "publish", "orders", str(folder / "letters.jsonl"))
        made.deliver("orders")
    with Server(made) as running:
        yield running


@pytest.fixture(scope="module")
def window(desk: Server) -> Iterator[Page]:
    """A browser window of an operator."""
    with open_chromium() as chromium:
        yield logged_in(chromium, desk)


def logged_in(chromium: Browser, desk: Server) -> Page:
    """Log in, and return the window with the overview."""
    page = chromium.new_page(viewport={"width": 1100, "height": 760})
    log_in(page, desk.url, desk.installation.token("operator", "read", "payloads", "operate"))
    return page


def test_an_operator_fixes_a_rule_and_its_dead_letters(desk: Server, window: Page) -> None:
    """Finds a failed event and the reason, tests and fixes the rule, resends the event and redrives the others."""
    post = Path(desk.installation.folder, "post.jsonl")
    window.get_by_role("link", name="Dead letters").click()
    window.get_by_label("Rule", exact=True).fill("letters")
    window.get_by_role("button", name="Find").click()
    window.get_by_role("link", name="Show").first.click()
    window.get_by_role("link", name="letter-1", exact=True).click()
    expect(window.get_by_role("cell", name="dead-lettered").first).to_be_visible()
    expect(window.get_by_text("transform_failed").first).to_be_visible()

    window.get_by_role("link", name="Test letters on this event").click()
    window.get_by_role("button", name="Test", exact=True).click()
    expect(window.get_by_text("The pattern matches")).to_be_visible()
    expect(window.get_by_text("adress").last).to_be_visible()
    file = desk.installation.folder / "rules" / "letters.yaml"
    file.write_text(file.read_text().replace("adress", "address"))
    transform = window.get_by_label("Transform of post")
    transform.fill(transform.input_value().replace("adress", "address"))
    window.get_by_label("Pattern").fill('{"type": ["letter.written"], "data": {"kind": ["business"]}}')
    window.get_by_role("button", name="Test", exact=True).click()
    expect(window.get_by_text("The pattern does not match")).to_be_visible()
    expect(window.get_by_label("not met").first).to_be_visible()
    expect(window.locator("#result pre").filter(has_text="Long Street 1")).to_be_visible()
    assert not post.exists(), "a test delivers nothing"

    window.goto(f"{desk.url}/page/event?id=letter-1")
    window.get_by_label("Resend to all targets").click()
    window.get_by_role("button", name="Resend now").first.click()
    expect(window.get_by_role("heading", name="Replay")).to_be_visible()
    desk.installation.replay(window.url.rpartition("/")[2])
    assert post.read_text().count("Long Street 1") == 1

    window.get_by_role("link", name="Dead letters").click()
    window.get_by_label("Rule", exact=True).fill("letters")
    window.get_by_role("button", name="Find").click()
    window.get_by_role("button", name="Redrive 3 ...").click()
    window.get_by_label("Route with the current rules").check()
    window.get_by_role("button", name="Update the preview").click()
    expect(window.get_by_role("row", name="letters/post 3")).to_be_visible()
    window.get_by_role("button", name="Start redrive").click()
    desk.installation.redrive(window.locator("td.name").first.inner_text())
    assert [post.read_text().count(f"Long Street {number}") for number in range(3)] == [1, 2, 1]

    window.get_by_role("link", name="Batches").click()
    window.locator("td.name a").first.click()
    expect(window.get_by_text("every event of this batch is accounted for")).to_be_visible()
    window.get_by_role("link", name="Overview").click()
    expect(window.get_by_text("3 of 3 events accounted for")).to_be_visible()
    expect(window.get_by_text("reconciled")).to_have_class("badge good")
    assert window.title() == "Overview - EventBridge"  # no script of an event ran


def test_the_timeline_has_request_and_response_of_each_attempt(desk: Server, window: Page) -> None:
    """Escaped; a request that cannot be rendered is explained; without the right, payloads are marked as hidden."""
    window.goto(f"{desk.url}/page/event?id=letter-1")
    attempt = window.get_by_role("listitem").filter(has_text="notices / desk attempt 1 200")
    attempt.get_by_role("link", name="Request and response of attempt 1 at notices / desk").click()
    request, response = (window.locator("section.card").filter(has_text=each) for each in ("as rendered", "1 attempt"))
    expect(request.locator("pre")).to_contain_text("Long Street 1")
    expect(response.locator("pre")).to_have_text(HOSTILE)
    window.goto(f"{desk.url}/page/request?id=letter-1&rule=letters&target=post")
    expect(window.get_by_text("curl commands exist only for the type http")).to_be_visible()
    assert window.title() != "taken"  # no script of a response ran

    with desk.client(desk.installation.token("eyes", "read")) as eyes:
        (event,) = eyes.get("/v1/events/letter-1").json()["events"]
    assert [each["response_head"] for each in event["steps"] if each["response_head"]] == [HIDDEN]
