"""An example of every page and form by its route, and requests as a browser sends them, for the tests of the page.

A new page without an example fails the tests that load all pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from api.server import Server
from fastapi.routing import APIRoute

from eventbridge.api.app import PAGE_ROUTERS
from eventbridge.client import EventBridgeClient

OWN = {"sec-fetch-site": "same-origin"}
#: Files of the pages, and redirects.
NO_PAGES = {
    "/api.js",
    "/page.js",
    "/lag.json",
    "/lag.js",
    "/style.css",
    "/theme.js",
    "/chunk",
    "/run",
    "/find",
    "/events/export",
}
#: A path of each page, with `{dead_letter}`, `{batch}`, `{replay}` and `{backtest}` to be filled in; see `pages_of`.
EXAMPLES = {
    "": "",
    "/actions": "/actions",
    "/api": "/api",
    "/backtest": "/backtest?rule=refused&from=1h",
    "/backtests": "/backtests",
    "/backtests/{backtest_id}": "/backtests/{backtest}",
    "/batches": "/batches",
    "/batches/{batch_id}": "/batches/{batch}",
    "/batches/{batch_id}/chunks/{chunk_id}": "/batches/{batch}/chunks/0",
    "/buses": "/buses",
    "/dead-letters": "/dead-letters",
    "/dead-letters/{name:path}": "/dead-letters/{dead_letter}",
    "/errors": "/errors",
    "/event": "/event?id=o2",
    "/events": "/events?type=order.placed",
    "/redrive": "/redrive?rule=refused",
    "/redrives": "/redrives",
    "/replay": "/replay?bus=orders&from=1h",
    "/replays": "/replays",
    "/replays/{replay_id}": "/replays/{replay}",
    "/request": "/request?id=o2&rule=refused&target=crm",
    "/rules": "/rules",
    "/rules/{name}": "/rules/refused",
    "/rules/{name}/test": "/rules/refused/test?event=o2",
    "/schemas": "/schemas",
    "/schemas/{type:path}": "/schemas/order.placed",
    "/targets": "/targets",
    "/targets/{rule}/{name}": "/targets/refused/crm?from=7d",
    "/targets/{rule}/{name}/try": "/targets/refused/crm/try?event=o2",
}
#: A form for each POST route.
FORMS = {
    "/redrive": ("/redrive", {"rule": "refused", "again": "1"}),
    "/redrives/{redrive_id}/cancel": ("/redrives/0/cancel", {}),
    "/replay": ("/replay", {"bus": "orders", "from": "1h"}),
    "/replays/{replay_id}/{word}": ("/replays/{replay}/cancel", {}),
    "/rules/{name}/backtest": ("/rules/refused/backtest", {"from": "1h"}),
    "/rules/{name}/operate": ("/rules/refused/operate", {"action": "pause rule"}),
    "/rules/{name}/test": ("/rules/refused/test", {"body": "{}"}),
    "/targets/{rule}/{name}/try": ("/targets/refused/crm/try", {"do": "check"}),
}


def without_own_scripts(page: str) -> str:
    """Return the text of a page without the elements of EventBridge's own scripts."""
    return re.sub(r'<script src="/page/(?:page|api)\.js" defer></script>', "", page)


def routes(method: str) -> set[str]:
    """Return the routes of the page for a method, except the login."""
    found = [route for router in PAGE_ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {route.path.removeprefix("/page") for route in found if method in route.methods}


def pages_of(server: Server) -> dict[str, str]:
    """Return a path of each page of the server `delivered`, by route; creates a cancelled replay and a backtest."""
    assert routes("GET") - NO_PAGES == set(EXAMPLES)
    return {route: path.format_map(_named(server)) for route, path in EXAMPLES.items()}


def forms_of(server: Server) -> dict[str, tuple[str, dict[str, str]]]:
    """Return a path and the fields of a form of the server `delivered`, by route."""
    assert routes("POST") == set(FORMS)
    return {route: (path.format_map(_named(server)), fields) for route, (path, fields) in FORMS.items()}


_known: dict[Path, dict[str, str]] = {}


def _named(server: Server) -> dict[str, str]:
    folder = server.installation.folder
    if folder not in _known:
        with EventBridgeClient(server.url, server.installation.token("pages", "read", "operate")) as client:
            replay = client.start_replay("orders", "1h", rules=["refused"]).replay_id
            client.post("replays", replay, "cancel")
            dead_letter = next(client.dead_letters(rule="refused"))
            *_, oldest = client.items("batches")
        _known[folder] = {
            "replay": replay,
            "dead_letter": dead_letter.name,
            "batch": oldest["batch_id"],
        }
        _known[folder]["backtest"] = server.installation.backtest("refused")
    return _known[folder]


def key_of(browser: httpx.Client) -> str:
    """Return the form key of this login."""
    (key,) = set(re.findall(r'name="key" value="([0-9a-f]+)"', browser.get("/page/rules/refused/test").text))
    return str(key)


def post(browser: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """Post a form of the page as a browser does."""
    return browser.post(f"/page{path}", data={"key": key_of(browser), **fields}, headers=OWN)
