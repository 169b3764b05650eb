"""Changes by the page: the rights that they need, and that no other site can make them."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from api.pages import OWN, forms_of, key_of, post, without_own_scripts
from api.server import Server, order

from eventbridge.client import ApiError

PAUSE = {"action": "pause rule"}


def recorded_actions(browser: httpx.Client) -> list[tuple[str, str]]:
    """Return the recorded calls and their results, the newest first."""
    row = r'<td data-name="Result"><span[^>]*>([^<]*)</span>.*?<summary[^>]*>((?:POST|eventbridge) [^<]*)</summary>'
    return [(call, result) for result, call in re.findall(row, browser.get("/page/actions").text)]


@pytest.fixture(scope="module")
def operator(delivered: Server) -> Iterator[httpx.Client]:
    """A browser whose user may operate."""
    with delivered.client() as browser:
        browser.post(
            "/page/login",
            data={"token": delivered.installation.token("op", "read", "payloads", "operate")},
            headers=OWN,
        )
        yield browser


def test_a_rule_is_paused_and_resumed(delivered: Server, operator: httpx.Client) -> None:
    """The page names the user that paused it, and offers to resume it."""
    paused = post(operator, "/rules/all-orders/operate", **PAUSE)
    shown = operator.get(paused.headers["location"]).text
    resumed = post(operator, "/rules/all-orders/operate", action="resume rule")
    after = operator.get("/page/rules/all-orders").text

    assert (paused.status_code, resumed.status_code) == (303, 303)
    assert recorded_actions(operator)[:2] == [("POST /page/rules/all-orders/operate", "done")] * 2
    assert ("by op" in shown, ">Resume<" in shown) == (True, True)
    assert ("by op" in after, ">Pause<" in after) == (False, True)


def test_one_target_is_paused_and_resumed(operator: httpx.Client) -> None:
    """The rule and its other targets are not paused."""
    post(operator, "/rules/all-orders/operate", action="pause target", target="archive")
    shown = operator.get("/page/rules/all-orders").text
    post(operator, "/rules/all-orders/operate", action="resume target", target="archive")

    there = post(operator, "/rules/all-orders/operate", action="pause target", target="archive", back="target")
    target = operator.get(there.headers["location"]).text
    post(operator, "/rules/all-orders/operate", action="resume target", target="archive")

    assert (">Resume archive<" in shown, ">Pause<" in shown) == (True, True)
    assert (there.headers["location"], ">Resume<" in target, "by op" in target) == (
        "/page/targets/all-orders/archive?done=pause+target&of=archive",
        True,
        True,
    )
    assert ">Pause archive<" in operator.get("/page/rules/all-orders").text


def test_rate_and_priority_are_set_and_cleared(operator: httpx.Client) -> None:
    """A malformed rate is refused."""
    there = "/rules/all-orders/operate"
    post(operator, there, action="set rate", target="archive", value="300/m", back="target")
    post(operator, there, action="set priority", value="high")
    target, rule = (operator.get(f"/page{path}").text for path in ("/targets/all-orders/archive", "/rules/all-orders"))
    wrong = post(operator, there, action="set rate", target="archive", value="fast")
    post(operator, there, action="clear rate", target="archive", back="target")
    post(operator, there, action="clear priority")
    after = operator.get("/page/rules/all-orders").text

    assert ("Rate 5.0 since" in target, ">Clear rate<" in target) == (True, True)
    assert ("Priority high since" in rule, "<option selected>high" in rule) == (True, True)
    assert (wrong.status_code, "by op" in after, "<option selected>medium" in after) == (400, False, True)


@pytest.mark.parametrize(
    ("path", "fields", "heading", "reason", "kept"),
    [
        (
            "/rules/all-orders/operate",
            {"action": "set rate", "target": "archive", "value": "fast", "back": "target"},
            "all-orders / archive",
            "fast",
            'value="fast"',
        ),
        ("/rules/all-orders/operate", {"action": "set priority", "value": "urgent"}, "all-orders", "urgent", ""),
        ("/redrive", {"rule": "refused", "rate": "fast"}, "Redrive dead letters", "fast", 'value="fast"'),
        (
            "/replay",
            {"bus": "orders", "from": "1h", "rate": "fast"},
            "Replay archived events",
            "fast",
            'value="fast"',
        ),
    ],
    ids=["rate", "priority", "redrive", "replay"],
)
def test_a_form_with_a_wrong_value_is_shown_again(
    operator: httpx.Client, path: str, fields: dict[str, str], heading: str, reason: str, kept: str
) -> None:
    """The page of the form comes back with the reason and the input, and nothing is changed."""
    before = operator.get("/page/actions").text.count("by op")
    refused = post(operator, path, **fields)
    notice = re.search(r'<p class="notice" role="alert">(.*)</p>', refused.text)

    assert refused.status_code == 400
    assert f"<h1>{heading}" in refused.text
    assert notice is not None
    assert reason in notice[1]
    assert notice[1].endswith("Nothing was changed.")
    assert kept in refused.text
    assert operator.get("/page/actions").text.count("by op") == before


def test_an_error_page_links_back(operator: httpx.Client) -> None:
    """To the page that the browser came from, but to no other site."""
    root = str(operator.base_url).rstrip("/")
    back = operator.get("/page/redrive", headers={"referer": f"{root}/page/dead-letters?reason=target_gone"})
    other = operator.get("/page/redrive", headers={"referer": "https://evil.example/page/dead-letters"})

    assert (back.status_code, other.status_code) == (400, 400)
    assert 'href="/page/dead-letters?reason=target_gone"' in back.text
    assert "evil" not in other.text


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
    ids=str,
)
def test_a_form_without_proof_of_its_origin_changes_nothing(
    headers: dict[str, str], delivered: Server, operator: httpx.Client
) -> None:
    """No form does, not even with the form key of the login; no action is recorded."""
    forms = forms_of(delivered).values()
    key, before = key_of(operator), recorded_actions(operator)
    responses = [operator.post(f"/page{path}", data={"key": key} | fields, headers=headers) for path, fields in forms]

    assert {response.status_code for response in responses} == {403}
    assert recorded_actions(operator) == before


def test_a_reader_changes_nothing_by_any_form(delivered: Server) -> None:
    """With the own form key, from the page itself: testing a pattern works, everything else is refused."""
    with delivered.client() as viewer:
        viewer.post(
            "/page/login", data={"token": delivered.installation.token("bystander", "read", "payloads")}, headers=OWN
        )
        forms = forms_of(delivered).items()
        before = recorded_actions(viewer)
        responses = {route: post(viewer, path, **fields) for route, (path, fields) in forms}

        assert {route for route, response in responses.items() if response.status_code != 403} == {"/rules/{name}/test"}
        assert recorded_actions(viewer) == before


def test_a_form_without_the_form_key_changes_nothing(delivered: Server, operator: httpx.Client) -> None:
    """Neither does one with the key of another login, nor one of a reader."""
    with delivered.client() as viewer:
        viewer.post("/page/login", data={"token": delivered.installation.token("eyes", "read")}, headers=OWN)
        foreign = {"key": key_of(viewer), **PAUSE}
        responses = [
            operator.post("/page/rules/all-orders/operate", data=PAUSE, headers=OWN),
            operator.post("/page/rules/all-orders/operate", data=foreign, headers=OWN),
            viewer.post("/page/rules/all-orders/operate", data=foreign, headers=OWN),
            viewer.post("/page/targets/all-orders/archive/try", data=foreign | {"do": "check"}, headers=OWN),
        ]
        buttons = viewer.get("/page/rules/all-orders").text.count('method="post"')

    assert [response.status_code for response in responses] == [403] * 4
    assert "has read-only access" in responses[-1].text
    assert buttons == 1  # Log out
    assert "by op" not in operator.get("/page/rules/all-orders").text


def test_a_pattern_is_tested_on_an_event(operator: httpx.Client) -> None:
    """The page shows which condition fails, and what each target would be sent; markup stays text."""
    hostile = order(7, data={"amount": 0, "text": "</textarea><script>alert(1)</script>"})
    failed = post(operator, "/rules/refused/test", body=json.dumps(hostile))
    changed = post(operator, "/rules/refused/test", body=json.dumps(hostile), pattern='{"type": ["order.placed"]}')
    wrong = post(operator, "/rules/refused/test", body=json.dumps(hostile), pattern='{"type": 1}')

    assert ("The pattern does not match" in failed.text, 'aria-label="not met"' in failed.text) == (True, True)
    assert ("The pattern matches" in changed.text, "crm" in changed.text) == (True, True)
    assert "This is not a pattern" in wrong.text
    assert all(
        "<script" not in without_own_scripts(page.text) and "&lt;script&gt;" in page.text
        for page in (failed, changed, wrong)
    )


def test_an_archived_event_is_loaded_for_the_test(operator: httpx.Client) -> None:
    """The form has the event of the archive."""
    page = operator.get("/page/rules/refused/test?event=o2").text

    assert ("&#34;id&#34;: &#34;o2&#34;" in page, "<script" in without_own_scripts(page)) == (True, False)


def test_dead_letters_are_redriven(operator: httpx.Client) -> None:
    """The preview shows how many; the form records the redrive, and the page shows the command that delivers it."""
    preview = operator.get("/page/redrive?rule=refused").text
    too_early = operator.get("/page/redrive?rule=refused&to=1d").text
    nothing = operator.get("/page/redrive")
    begun = post(operator, "/redrive", rule="refused", again="1")
    listed = operator.get(begun.headers["location"]).text
    (redrive_id,) = re.findall(r"redrives resume ([0-9a-f-]+)", listed)
    cancelled = post(operator, f"/redrives/{redrive_id}/cancel")

    assert ("refused/crm" in preview, "Start redrive" in preview) == (True, True)
    assert ("refused/crm" in too_early, "Start redrive" in too_early) == (False, False)
    assert (nothing.status_code, "no filter given" in nothing.text) == (400, True)
    assert "rule refused" in listed
    assert cancelled.status_code == 303
    after = operator.get("/page/redrives").text
    assert (">cancelled<" in after, redrive_id in after, f"redrives resume {redrive_id}" in after) == (
        True,
        True,
        False,
    )


def test_errors_are_shown_as_a_page(operator: httpx.Client) -> None:
    """A browser gets no JSON, and still has the menu."""
    responses = [
        operator.get("/page/dead-letters?limit=x"),
        operator.get("/page/rules/none"),
        operator.get("/page/dead-letters?from=yesterday"),
        operator.get("/page/nothing"),
        post(operator, "/rules/all-orders/operate", action="explode rule"),
    ]
    assert recorded_actions(operator)[0] == ("POST /page/rules/all-orders/operate", "refused")

    assert [response.status_code for response in responses] == [422, 404, 400, 404, 400]
    assert all(response.headers["content-type"].startswith("text/html") for response in responses)
    assert all("<h1>" in response.text for response in responses)
    deep = post(operator, "/rules/refused/test", body="[" * 50_000, pattern="[" * 50_000)
    assert (deep.status_code, "nested deeper than" in deep.text) == (200, True)


def test_readers_do_not_wait_for_operators(delivered: Server, operator: httpx.Client) -> None:
    """While another process locks the ledger, a form waits for it, but pages are shown."""
    key = key_of(operator)
    ledger = sqlite3.connect(delivered.installation.folder / "home" / "ledger.sqlite", isolation_level=None)
    form = {"key": key, "action": "pause rule"}
    with closing(ledger), ThreadPoolExecutor(1) as threads:
        ledger.execute("BEGIN IMMEDIATE")
        pending = threads.submit(operator.post, "/page/rules/refused/operate", data=form, headers=OWN)
        try:
            shown = [operator.get("/page/rules/refused").status_code for _ in range(4)]
            assert not pending.done()
        finally:
            ledger.execute("ROLLBACK")
        assert pending.result().status_code == 303

    assert shown == [200] * 4
    assert post(operator, "/rules/refused/operate", action="resume rule").status_code == 303


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({}, False),
        ({"x-forwarded-proto": "https"}, True),
        ({"origin": "https://events.example", "sec-fetch-site": "same-origin"}, True),
    ],
    ids=str,
)
def test_the_cookie_is_secure_if_the_browser_uses_tls(headers: dict[str, str], secure: bool, delivered: Server) -> None:
    """Also if a proxy terminates TLS."""
    token = delivered.installation.token(f"tls{len(headers)}{secure}", "read")
    with delivered.client() as browser:
        response = browser.post("/page/login", data={"token": token}, headers=headers)

    assert ("; Secure" in response.headers["set-cookie"]) is secure


def test_the_api_does_what_the_page_does(delivered: Server) -> None:
    """With a token of the scope operate, whose name is recorded; a reader is refused."""
    robot = delivered.api(delivered.installation.token("robot", "operate", "read", "payloads"))
    reader = delivered.api(delivered.installation.token("watcher", "read"))
    with robot, reader:
        for path in (("targets", "all-orders", "archive", "pause"), ("redrives",), ("redrives", "1", "cancel")):
            with pytest.raises(ApiError, match="403 scope_required"):
                reader.post(*path, body={"rule": "refused"})
        changes = [robot.change_target("all-orders", "archive", verb) for verb in ("pause", "resume")]
        would = robot.post("redrives", body={"rule": "refused", "again": True, "dry_run": True})
        begun = robot.post("redrives", body={"rule": "refused", "again": True})
        ended = robot.post("redrives", begun["redrive_id"][:8], "cancel")
        with pytest.raises(ApiError, match="400 invalid_value"):
            robot.start_redrive()
        listed = [each["redrive_id"] for each in reader.items("redrives")]

    assert [each.changed for each in changes] == [True, True]
    assert [each["of"] for each in would["taken"]] == ["refused/crm"]
    assert (begun["state"], ended["state"]) == ("running", "cancelled")
    assert begun["redrive_id"] in listed


def test_a_rule_without_versions_has_a_page(server: Server) -> None:
    """No batch was planned with it yet."""
    with server.client() as browser:
        browser.post("/page/login", data={"token": server.installation.token("early", "read")}, headers=OWN)

        assert browser.get("/page/rules/all-orders").status_code == 200


def test_a_target_is_checked_and_sent_an_event(delivered: Server, operator: httpx.Client) -> None:
    """The result is shown; neither counts as a delivery."""
    archive = delivered.installation.folder / "archive.jsonl"
    before = archive.read_text().count("by hand")
    body = json.dumps(order(9, subject="by hand"))
    checked = post(operator, "/targets/refused/crm/try", do="check").text
    sent = post(operator, "/targets/all-orders/archive/try", do="send", body=body).text
    wrong = post(operator, "/targets/all-orders/archive/try", do="send", body="no event").text
    filled = operator.get("/page/targets/refused/crm/try?event=o2").text

    assert "The target cannot be reached: ConnectionRefused" in checked
    assert ("The target accepted the event" in sent, archive.read_text().count("by hand")) == (True, before + 1)
    assert "This is not an event" in wrong
    assert ("&lt;script&gt;" in filled, "<script" in without_own_scripts(filled)) == (True, False)


def test_the_test_of_a_rule_names_its_file(operator: httpx.Client) -> None:
    """It offers archived events and, for a changed pattern, names the file and the line."""
    form = operator.get("/page/rules/refused/test").text
    same = operator.post("/page/rules/refused/test", data={"key": key_of(operator), "body": "{}"}, headers=OWN).text
    changed = post(
        operator, "/rules/refused/test", body=json.dumps(order(7)), pattern='{"type": ["order.placed"]}'
    ).text

    assert ('<option value="o1">' in form, "Write it into" in same) == (True, False)
    assert "Write it into refused.yaml, the rule at line 3" in changed
    assert "refused.yaml, line 3" in operator.get("/page/rules/refused").text
