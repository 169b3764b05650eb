"""No page and no response of the API has a secret of a connection, although targets repeat every request."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from api.pages import OWN
from api.server import Installation, Server, order
from demo.receiver import ADDRESSES, Receiver

#: Part of every secret, with characters that URLs, JSON and HTML escape.
MARK = "hu5h"
SECRET = f"{MARK}/{MARK}+&<é>{MARK}"
HMAC = base64.b64encode((MARK * 6).encode()).decode()
FORMS = (MARK, HMAC, base64.b64encode(f"shop:{SECRET}".encode()).decode())
CONNECTIONS = {
    "basic": {"login": "shop", "password": SECRET},
    "header": {"extra": {"api_key": f"ApiKey {SECRET}", "api_key_header": "authorization"}},
    "query": {"extra": {"api_key": SECRET, "api_key_query": "key"}},
    "signed": {"extra": {"token": f"{MARK}{MARK}", "signing_secret": f"whsec_{HMAC}"}},
    "url": {"extra": {"secret_url": f"/mirror/{quote(SECRET, safe='')}"}},
}
#: Read calls of the API, with placeholders.
CALLS = (
    *(
        "/v1/status",
        "/v1/buses",
        "/v1/buses/orders",
        "/v1/rules",
        "/v1/rules/guarded",
        "/v1/rules/guarded/versions",
        "/v1/rule-changes",
    ),
    *(
        "/v1/targets",
        "/v1/pools",
        "/v1/actions",
        "/v1/audit",
        "/v1/stats",
        "/v1/schemas",
        "/v1/batches",
        "/v1/chunks",
        "/v1/chunks?failures=true",
    ),
    *(
        "/v1/dead-letters?whole=true",
        "/v1/dead-letter-groups",
        "/v1/events?bus=orders",
        "/v1/events/o1",
        "/v1/redrives",
        "/v1/replays",
    ),
    *("/metrics?targets=true", "/openapi.json"),
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose targets repeat each request in the response, and reject it."""
    folder = tmp_path_factory.mktemp("guarded")
    with Receiver(folder / "requests.jsonl") as receiver:
        environ, targets = {}, []
        for name, connection in CONNECTIONS.items():
            held = json.loads(json.dumps(connection))
            given = f'url: "{receiver.url("/mirror")}", '
            held |= {"host": receiver.url("")}
            if name == "url":
                held["extra"]["secret_url"], given = receiver.url(held["extra"]["secret_url"]), ""
            environ[f"EVENTBRIDGE_CONN_{name.upper()}"] = json.dumps({"conn_type": "http", **held})
            never = "retry: {policy: custom, max_retries: 0}"
            targets.append(f"      {name}: {{type: http, {given}allow_http: true, connection: {name}, {never}}}")
        made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES=ADDRESSES, **environ)
        rule = ["rules:", "  guarded:", "    bus: orders", "    pattern: {}", "    targets:", *targets, ""]
        (folder / "rules" / "guarded.yaml").write_text("\n".join(rule))
        (folder / "orders.jsonl").write_text(json.dumps(order(1)))
        made.run("events", "publish", "orders", str(folder / "orders.jsonl"))
        made.deliver("orders")
        assert len(receiver.requests()) == len(CONNECTIONS)
        with Server(made) as running:
            yield running


def linked_pages(browser: httpx.Client) -> dict[str, str]:
    """Return every linked page, by its URL."""
    found: dict[str, str] = {}
    waiting = ["/page"]
    while waiting:
        address = waiting.pop()
        if address not in found:
            found[address] = browser.get(address, follow_redirects=True).text
            links = re.findall(r'href="(/page[^"#]*)', found[address])
            waiting += [html.unescape(each) for each in links if not each.endswith(".css")]
    return found


def send_event(browser: httpx.Client, address: str) -> str:
    """Send an event to a target with the form, and return the page."""
    key = re.findall(r'name="key" value="([0-9a-f]+)"', browser.get(address).text)[0]
    form = {"key": key, "do": "send", "body": json.dumps(order(2))}
    return browser.post(address, data=form, headers=OWN).raise_for_status().text


def test_no_secret_is_shown(guarded: Server) -> None:
    """Pages, forms and calls show asterisks instead, even to a user with all rights."""
    token = guarded.installation.token("all", "read", "payloads", "operate", "metrics")
    with guarded.client() as browser, guarded.client(token) as program:
        browser.post("/page/login", data={"token": token})
        texts = linked_pages(browser)
        texts |= {f"GET {path}": program.get(path).raise_for_status().text for path in CALLS}
        for name in CONNECTIONS:
            path = f"/v1/targets/guarded/{name}"
            texts[f"try {name}"] = send_event(browser, f"/page{path.removeprefix('/v1')}/try")
            texts[f"send {name}"] = program.post(f"{path}/send", json={"event": order(3)}).raise_for_status().text
            texts[f"check {name}"] = program.post(f"{path}/check").raise_for_status().text

    assert [(where, form) for where, text in texts.items() for form in FORMS if form in text] == []
    assert len([where for where in texts if "/dead-letters/" in where]) >= len(CONNECTIONS)
    assert len([where for where in texts if where.startswith("/page/request")]) >= len(CONNECTIONS)
    assert len([where for where, text in texts.items() if "*****" in text]) > 2 * len(CONNECTIONS)
