"""The portal shows one owner's rules, events, targets and dead letters, and nothing of any other owner."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from api.pages import OWN, routes
from api.server import Installation, Server, order

from eventbridge.api.page.portal import COOKIE, PAGES
from eventbridge.config.settings import Settings
from eventbridge.errors import SettingsError

#: Everything of the other owner has this word in its name or content.
RIVAL = "rival"
RULES = """
buses:
  rival-bus: {{owner: rival, source: {{type: embedded, start_at: earliest}}}}
rules:
  shop-rule:
    owner: shop
    bus: orders
    pattern: {{type: [shop.placed]}}
    targets:
      shop-target: {{type: http, url: "http://127.0.0.1:9/shop", allow_http: true,
                     retry: {{policy: custom, max_retries: 0}}}}
  rival-rule:
    owner: rival
    bus: orders
    pattern: {{type: [{{prefix: rival}}]}}
    targets:
      rival-target: {{type: http, url: "http://127.0.0.1:9/rival", allow_http: true,
                      retry: {{policy: custom, max_retries: 0}}}}
"""
ORIGIN = "https://app.partner.example"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a bus that two owners use: each has an event, a dead letter, a redrive and a replay."""
    folder = tmp_path_factory.mktemp("portal")
    made = Installation(
        folder,
        EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8",
        EVENTBRIDGE_PORTAL_URL="https://events.example.com/eb",
        EVENTBRIDGE_PORTAL_ORIGINS=ORIGIN,
    )
    (folder / "rules" / "owners.yaml").write_text(RULES.format(folder=folder))
    own = order(1, id="shop-1", type="shop.placed", subject="shop-subject")
    other = order(2, id="rival-1", type="rival.placed", subject="rival-subject", source="/rival")
    (folder / "events.jsonl").write_text("\n".join([json.dumps(own), json.dumps(other), "rival: no event"]))
    made.run("events", "publish", "orders", str(folder / "events.jsonl"))
    made.deliver("orders")
    made.run("rules", "pause", "rival-rule")
    with Server(made) as running:
        operator = made.token("operator", "read", "operate")
        with running.api(operator) as api:
            replay = api.start_replay("orders", "1h", rules=["rival-rule"]).replay_id
            api.post("replays", replay, "cancel")
            redrive = api.start_redrive(rule="rival-rule").redrive_id
            dead = {each.rule: each.name for each in api.dead_letters()}
            batch = next(iter(api.items("batches")))["batch_id"]
        running.names = {"replay": replay, "redrive": redrive, "batch": batch, "dead": dead}  # type: ignore[attr-defined]
        yield running


def link(server: Server, *options: str) -> tuple[str, str]:
    """Create a link for the owner shop and return its token and its name."""
    output = server.installation.run(
        "tokens", "create", "--owner", "shop", "--portal", "--ttl", "1h", *options, "--json"
    )
    made = json.loads(output)
    address, _, token = made["link"].partition("#")
    assert address == "https://events.example.com/eb/portal/page/open"
    return token, made["name"]


@contextmanager
def entered(server: Server, token: str) -> Iterator[httpx.Client]:
    """Yield a browser that has opened the link."""
    with httpx.Client(base_url=f"{server.url}/portal", headers=OWN, timeout=60) as browser:
        response = browser.post("/page/open", data={"token": token})
        assert (response.status_code, response.headers["location"]) == (303, "/portal/page")
        yield browser


@pytest.fixture(scope="module", params=[(), ("--scope", "payloads", "--scope", "operate")], ids=["read", "operate"])
def browser(shared: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A browser with a session of the portal: read-only, and with every scope that a link can have."""
    with entered(shared, link(shared, *request.param)[0]) as opened:
        yield opened


#: A path of each page of the portal, for an owner's own name `shop` and for names of others.
PATHS = {
    "": [""],
    "/find": [],
    "/style.css": ["/style.css"],
    "/page.js": ["/page.js"],
    "/events": [
        *("/events", "/events?bus=orders&from=7d", "/events?bus={0}-bus", "/events?bus=orders&type={0}.placed"),
        *("/events?bus=orders&source=/{0}", "/events?bus=orders&subject={0}-subject"),
    ],
    "/event": ["/event?id={0}-1", "/event?id=shop-1&rule={0}-rule", "/event?id={0}-1&rule=shop-rule&every_rule=1"],
    "/request": [
        "/request?id={0}-1&rule={0}-rule&target={0}-target",
        "/request?id={0}-1&rule=shop-rule&target=shop-target",
        "/request?id=shop-1&rule={0}-rule&target={0}-target",
    ],
    "/rules": ["/rules", "/rules?find={0}"],
    "/rules/{name}": ["/rules/{0}-rule"],
    "/rules/{name}/test": ["/rules/{0}-rule/test", "/rules/shop-rule/test?event={0}-1"],
    "/targets": ["/targets", "/targets?find={0}"],
    "/targets/{rule}/{name}": ["/targets/{0}-rule/{0}-target"],
    "/targets/{rule}/{name}/try": [
        "/targets/{0}-rule/{0}-target/try",
        "/targets/shop-rule/shop-target/try?event={0}-1",
    ],
    "/dead-letters": [
        "/dead-letters",
        "/dead-letters?by=letter",
        "/dead-letters?rule={0}-rule",
        "/dead-letters?error={0}",
    ],
    "/dead-letters/{name:path}": [],
    "/redrive": ["/redrive?everything=1", "/redrive?rule={0}-rule"],
    "/redrives": ["/redrives"],
}
FORMS = {
    "/redrive": ("/redrive", {"rule": "{0}-rule", "again": "1"}),
    "/redrives/{redrive_id}/cancel": ("/redrives/{0}/cancel", {}),
    "/rules/{name}/operate": ("/rules/{0}-rule/operate", {"action": "resume rule"}),
    "/rules/{name}/test": ("/rules/{0}-rule/test", {"body": "{}"}),
    "/targets/{rule}/{name}/try": ("/targets/{0}-rule/{0}-target/try", {"do": "check"}),
}


def test_every_route_of_the_portal_is_attacked_here() -> None:
    """A page that the portal gets later fails this test until it has paths here."""
    of_portal = {path.removeprefix("/page") for path in PAGES}

    assert of_portal & routes("GET") == set(PATHS)
    assert of_portal & routes("POST") == set(FORMS)
    assert of_portal <= routes("GET") | routes("POST")


def test_own_objects_are_shown(shared: Server, browser: httpx.Client) -> None:
    """The first page, events, the trace of an event, the rule, the target and the dead letter."""
    dead = shared.names["dead"]["shop-rule"]  # type: ignore[attr-defined]
    paths = ["", "/events?bus=orders", "/event?id=shop-1", "/rules/shop-rule", "/targets/shop-rule/shop-target"]
    pages = {path: browser.get(f"/page{path}") for path in [*paths, f"/dead-letters/{dead}", "/dead-letters"]}

    assert {page.status_code for page in pages.values()} == {200}
    assert [path for path, page in pages.items() if "shop-rule" not in page.text] == []
    assert "shop-1" in pages["/events?bus=orders"].text


@pytest.mark.parametrize("path", [path for paths in PATHS.values() for path in paths])
def test_a_page_is_the_same_as_if_no_other_owner_existed(path: str, browser: httpx.Client) -> None:
    """It has no word of the other owner; asked for a name of the other owner, it answers as for a name of nobody."""
    rival, nobody = browser.get(f"/page{path.format(RIVAL)}"), browser.get(f"/page{path.format('rivel')}")
    text = rival.text.replace(RIVAL, "rivel") if "{0}" in path else rival.text

    assert "{0}" in path or RIVAL not in rival.text
    assert rival.status_code == nobody.status_code
    assert without_moments(text) == without_moments(nobody.text)


def without_moments(text: str) -> str:
    """Return the text of a page without times and distances, which differ between two requests."""
    return re.sub(r"<time.*?</time>|<span class=\"ago\">.*?</span>|\d\d:\d\d", "", text)


def test_ids_of_others_lead_nowhere(shared: Server, browser: httpx.Client) -> None:
    """Neither by the page of a dead letter, nor by the search box."""
    names = shared.names  # type: ignore[attr-defined]
    others = [names["dead"]["rival-rule"], names["dead"][None]]
    pages = [browser.get(f"/page/dead-letters/{name}") for name in others]
    asked = ["rival-rule", "rival-rule/rival-target", names["batch"], names["replay"][:8], names["redrive"], *others]
    found = [browser.get("/page/find", params={"q": each}).headers["location"] for each in asked]

    assert [page.status_code for page in pages] == [404, 404]
    assert {each.partition("?")[0] for each in found} == {"/portal/page/event"}
    assert browser.get("/page/find", params={"q": "shop-rule"}).headers["location"] == "/portal/page/rules/shop-rule"


def test_other_pages_are_refused_and_not_linked(shared: Server, browser: httpx.Client) -> None:
    """Batches, replays, backtests, schemas, the audit log and the API are neither linked nor served."""
    names = shared.names  # type: ignore[attr-defined]
    others = {route for route in routes("GET") | routes("POST") if f"/page{route}" not in PAGES}
    filled = [re.sub(r"\{[^}]*\}", names["replay"], route) for route in others] + [f"/batches/{names['batch']}"]
    refused = {path: (browser.get(f"/page{path}"), browser.post(f"/page{path}")) for path in filled}
    paths = [path.format("shop") for paths in PATHS.values() for path in paths]
    texts = [browser.get(f"/page{path}").text for path in paths]
    linked = {each for text in texts for each in re.findall(r'href="(/[^"?#]*)', text)}

    assert "/batches" in others
    assert {each.status_code for both in refused.values() for each in both} == {403}
    assert [path for path, (page, _) in refused.items() if "The portal has no page" not in page.text] == []
    assert not [each for each in linked if not each.startswith("/portal/page")]
    assert [each for each in linked if "no page" in browser.get(each.removeprefix("/portal")).text] == []


@pytest.mark.parametrize("route", FORMS)
def test_objects_of_others_cannot_be_changed(route: str, shared: Server, browser: httpx.Client) -> None:
    """A form for an object of the other owner is refused as for an object that does not exist, and does nothing."""
    path, fields = FORMS[route]
    key = re.search(r'name="key" value="(\w+)"', browser.get("/page/rules/shop-rule/test").text)
    assert key is not None

    def send(name: str) -> httpx.Response:
        given = {field: value.replace("{0}", name) for field, value in fields.items()}
        return browser.post(f"/page{path.replace('{0}', name)}", data={"key": key[1], **given})

    redrive = shared.names["redrive"]  # type: ignore[attr-defined]
    rival, nobody = (send(redrive), send("0" * 36)) if "cancel" in route else (send(RIVAL), send("rivel"))

    assert rival.status_code == nobody.status_code
    assert rival.status_code in (400, 403, 404)
    assert rival.text.replace(RIVAL, "rivel").replace(redrive, "0" * 36) == nobody.text
    with shared.installation.opened() as runtime:
        assert [each.rule for each in runtime.ledger.overrides.all()] == ["rival-rule"]
        assert [each.state for each in runtime.ledger.redrives.all()] == ["running"]


def test_a_link_is_read_only_and_without_payloads(shared: Server) -> None:
    """Payloads and changes need their scopes; a change of an own rule is recorded under the name of the link."""
    with entered(shared, link(shared)[0]) as reader, entered(shared, link(shared, "--scope", "operate")[0]) as operator:
        hidden = reader.get("/page/event?id=shop-1").text
        statuses = []
        for each in (reader, operator):
            (key,) = set(re.findall(r'name="key" value="(\w+)"', each.get("/page/rules/shop-rule/test").text))
            for action in ("pause rule", "resume rule"):
                form = {"key": key, "action": action}
                statuses.append(each.post("/page/rules/shop-rule/operate", data=form).status_code)

    assert '"amount"' not in hidden
    assert statuses == [403, 403, 303, 303]


def test_a_link_opens_only_the_portal(shared: Server) -> None:
    """Its token is refused by the API and by the page of operators, and other tokens are refused by the portal."""
    token, _ = link(shared, "--scope", "operate", "--scope", "payloads")
    with shared.client(token) as program, shared.client() as page:
        calls = [program.get("/v1/rules"), program.post("/v1/rules/shop-rule/pause"), program.get("/metrics")]
        login = page.post("/page/login", data={"token": token}, headers=OWN)
        page.cookies.set(COOKIE, token, path="/")
        page.cookies.set("eventbridge_token", token, path="/")
        assert page.get("/page").status_code == 401
        other = shared.installation.token("program", "read", "operate", owners=["shop"])
        opened = page.post("/portal/page/open", data={"token": other}, headers=OWN)

    assert [each.status_code for each in calls] == [403, 403, 403]
    assert "opens the portal" in calls[0].json()["detail"]
    assert login.status_code == 401
    assert (opened.status_code, "set-cookie" in opened.headers) == (401, False)


def test_a_revoked_or_expired_link_ends_its_sessions(shared: Server) -> None:
    """Within seconds, with a page that says what to do; the list of tokens names the links."""
    token, name = link(shared)
    brief, expired = link(shared)
    with entered(shared, token) as one, entered(shared, brief) as other:
        shared.installation.run("tokens", "revoke", name)
        with closing(sqlite3.connect(shared.installation.folder / "home" / "ledger.sqlite")) as ledger, ledger:
            ledger.execute("UPDATE api_token SET expires_at = made_at WHERE name = ?", [expired])
        end = time.monotonic() + 30
        while one.get("/page").status_code != 401 and time.monotonic() < end:
            time.sleep(0.05)
        while other.get("/page").status_code != 401 and time.monotonic() < end:
            time.sleep(0.05)
        statuses = one.get("/page").status_code, other.get("/page").status_code
        text = one.get("/page").text

    assert statuses == (401, 401)
    assert "revoked or expired. Ask the team" in text
    listed = {each["name"]: each for each in json.loads(shared.installation.run("tokens", "list", "--json"))}
    assert (listed[name]["scopes"], listed[name]["revoked_at"] is None) == (["portal", "owner:shop"], False)
    assert token not in json.dumps(listed)


def test_the_session_works_in_an_iframe_of_the_allowed_sites_only(shared: Server) -> None:
    """Over HTTPS the cookie is sent within other sites, apart for each; over plain HTTP it is not."""
    token, _ = link(shared)
    with httpx.Client(base_url=shared.url, headers=OWN) as client:
        secure = client.post("/portal/page/open", data={"token": token}, headers={"x-forwarded-proto": "https"})
        plain = client.post("/portal/page/open", data={"token": token})
        policies = [
            client.get(path).headers["content-security-policy"] for path in ("/portal/page/open", "/page/login")
        ]
        foreign = client.post("/portal/page/open", data={"token": token}, headers={"sec-fetch-site": "cross-site"})

    attributes = "; Path=/portal/page; HttpOnly"
    assert secure.headers["set-cookie"].endswith(f"{attributes}; Secure; SameSite=None; Partitioned")
    assert plain.headers["set-cookie"].endswith(f"{attributes}; SameSite=Lax")
    assert [policy.rpartition("frame-ancestors ")[2] for policy in policies] == [f"'self' {ORIGIN}", "'self'"]
    assert foreign.status_code == 403


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--owner", "shop", "--portal"), "valid for a limited time"),
        (("--owner", "shop", "--owner", "rival", "--portal", "--ttl", "1h"), "one owner"),
        (("--owner", "shop", "--portal", "--ttl", "1h", "--scope", "read"), "cannot have the scope read"),
        (("--owner", "shopp", "--portal", "--ttl", "1h"), "Did you mean shop?"),
    ],
)
def test_an_error_creates_no_link(options: tuple[str, ...], said: str, shared: Server) -> None:
    """Exit code 2, with the remedy."""
    ended = subprocess.run(
        shared.installation.command("tokens", "create", *options),
        env=shared.installation.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, said in " ".join(ended.stderr.split())) == (2, True)


def test_a_default_of_the_settings_is_checked(tmp_path: Path) -> None:
    """An origin with a path, and a URL with a query, are errors."""
    for name, value in (
        ("PORTAL_ORIGINS", "https://a.example/x"),
        ("PORTAL_ORIGINS", "*"),
        ("PORTAL_URL", "https://a/?b"),
    ):
        with pytest.raises(SettingsError):
            Settings.from_mapping({f"EVENTBRIDGE_{name}": value})
