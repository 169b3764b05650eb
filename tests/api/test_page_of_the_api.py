"""The page of the API describes every call, only to users, and its form sends calls."""

from __future__ import annotations

import html
import json
import re
from contextlib import closing
from pathlib import Path

from api.server import Server
from api.windows import open_chromium
from playwright.sync_api import expect

from eventbridge.api import page as package

#: The maximum size of a page.
MAX_BYTES = 60 * 1024


def test_the_pages_show_every_call_to_users_only(delivered: Server) -> None:
    """Each call has its form, parameters, responses and models with their members; without a login there is none."""
    token = delivered.installation.token("page-of-the-api", "read")
    with delivered.client(token) as client:
        described = client.get("/openapi.json").json()
    calls = [(method.upper(), path, of) for path, each in described["paths"].items() for method, of in each.items()]
    with delivered.client() as browser:
        refused = [browser.get("/page/api"), browser.get("/page/api?call=get_rule")]
        browser.post("/page/login", data={"token": token})
        index, overview = browser.get("/page/api").text, browser.get("/page").text
        pages = {of["operationId"]: browser.get(f"/page/api?call={of['operationId']}").text for _, _, of in calls}
        models = {name: browser.get(f"/page/api?model={name}").text for name in described["components"]["schemas"]}
        unknown = [browser.get(f"/page/api?{each}").status_code for each in ("call=nothing", "model=Nothing")]
    texts = {name: html.unescape(page) for name, page in pages.items()}

    assert [(each.status_code, "data-path" in each.text) for each in refused] == [(401, False)] * 2
    assert unknown == [404, 404]
    assert [name for name in pages if f'<a href="/page/api?call={name}">' not in index] == []
    assert [name for name in models if f'<a href="/page/api?model={name}">' not in index] == []
    assert [
        path for how, path, of in calls if f'data-method="{how}" data-path="{path}"' not in pages[of["operationId"]]
    ] == []
    for _, _, of in calls:
        text = texts[of["operationId"]]
        names = {(each["name"], each["in"]) for each in of.get("parameters", ())}
        assert [each for each in names if f'name="{each[0]}" data-in="{each[1]}"' not in text] == []
        references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(of)))
        assert [each for each in references if f'<details id="model-{each}">' not in text] == []
    examples = [
        (of["operationId"], status, content["example"])
        for _, _, of in calls
        for status, each in of["responses"].items()
        for content in each.get("content", {}).values()
        if "example" in content
    ]
    assert len(examples) >= len(calls)
    shown = [(name, status) for name, status, example in examples if json.dumps(example, indent=2) not in texts[name]]
    assert shown == [("get_metrics", "200")]  # it is text
    assert [name for name, page in models.items() if f'<details id="model-{name}">' not in page] == []
    assert [name for name, page in {**pages, **models, "": index}.items() if len(page.encode()) > MAX_BYTES] == []
    assert '<a href="/page/api">' in overview


def test_the_script_is_small_and_ours(delivered: Server) -> None:
    """The policy permits scripts and connections of this server only, and the script writes no markup."""
    token = delivered.installation.token("script-reader", "read")
    with delivered.client() as browser:
        browser.post("/page/login", data={"token": token})
        policy = browser.get("/page/api?call=get_rule").headers["content-security-policy"]
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
        page.goto(f"{delivered.url}/page/api?call=get_rule")
        form = page.locator("#get_rule")
        form.locator("[name=rule]").fill("refused")
        form.locator("button").click()
        expect(form.locator("pre")).to_contain_text("token_required")
        page.locator("#token").fill(token)
        form.locator("button").click()
        expect(form.locator("pre")).to_contain_text("200")
        expect(form.locator("pre")).to_contain_text('"name":"refused"')
        expect(form.locator("pre")).to_contain_text("content-type: application/json")
