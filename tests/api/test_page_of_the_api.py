"""The page of the API describes every call, only to users, and its form sends calls."""

from __future__ import annotations

import html
import json
from contextlib import closing
from pathlib import Path

from api.server import Server
from api.windows import open_chromium
from playwright.sync_api import expect

from eventbridge.api import page as package


def test_the_page_shows_every_call_to_users_only(delivered: Server) -> None:
    """Each call has its form, parameters and responses, and each model its members; without a login there is none."""
    token = delivered.installation.token("page-of-the-api", "read")
    with delivered.client(token) as client:
        described = client.get("/openapi.json").json()
    with delivered.client() as browser:
        refused = browser.get("/page/api")
        browser.post("/page/login", data={"token": token})
        page = browser.get("/page/api")
        overview = browser.get("/page").text
    calls = [(method.upper(), path, of) for path, each in described["paths"].items() for method, of in each.items()]
    text = html.unescape(page.text)

    assert (refused.status_code, "data-path" in refused.text) == (401, False)
    assert [path for method, path, _ in calls if f'data-method="{method}" data-path="{path}"' not in text] == []
    assert [of["operationId"] for _, _, of in calls if f'<details id="{of["operationId"]}">' not in text] == []
    names = {(each["name"], each["in"]) for _, _, of in calls for each in of.get("parameters", ())}
    assert [each for each in names if f'name="{each[0]}" data-in="{each[1]}"' not in text] == []
    examples = [
        (of["operationId"], status, content["example"])
        for _, _, of in calls
        for status, each in of["responses"].items()
        for content in each.get("content", {}).values()
        if "example" in content
    ]
    assert len(examples) >= len(calls)
    shown = [(name, status) for name, status, example in examples if json.dumps(example, indent=2) not in text]
    assert shown == [("get_metrics", "200")]  # it is text
    assert [name for name in described["components"]["schemas"] if f'<details id="model-{name}">' not in text] == []
    assert '<a href="/page/api">' in overview


def test_the_script_is_small_and_ours(delivered: Server) -> None:
    """The policy permits scripts and connections of this server only, and the script writes no markup."""
    token = delivered.installation.token("script-reader", "read")
    with delivered.client() as browser:
        browser.post("/page/login", data={"token": token})
        policy = browser.get("/page/api").headers["content-security-policy"]
        script = browser.get("/page/api.js")
    source = (Path(package.__file__).parent / "api.js").read_text()

    assert policy.startswith("default-src 'none'; ")
    assert "; script-src 'self'; connect-src 'self';" in policy
    assert "unsafe" not in policy
    assert (script.text, script.headers["content-type"].partition(";")[0]) == (source, "text/javascript")
    assert (source.count("\n") < 150, "innerHTML" in source, "eval" in source) == (True, False, False)


def test_a_form_sends_its_call(delivered: Server) -> None:
    """With the pasted token the response has status, headers and body; without it the call is refused."""
    token = delivered.installation.token("sender", "read")
    with open_chromium() as chromium, closing(chromium.new_page()) as page:
        page.goto(f"{delivered.url}/page/login")
        page.request.post(f"{delivered.url}/page/login", form={"token": token})
        page.goto(f"{delivered.url}/page/api#get_rule")
        form = page.locator("#get_rule form")
        page.locator("#get_rule").evaluate("each => { each.open = true; }")
        form.locator("[name=rule]").fill("refused")
        form.locator("button").click()
        expect(form.locator("pre")).to_contain_text("token_required")
        page.locator("#token").fill(token)
        form.locator("button").click()
        expect(form.locator("pre")).to_contain_text("200")
        expect(form.locator("pre")).to_contain_text('"name":"refused"')
        expect(form.locator("pre")).to_contain_text("content-type: application/json")
