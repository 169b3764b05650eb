"""A token limited to owners sees and changes only their objects, by the API and by the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from api.pages import pages_of, post
from api.server import Server, order
from stored import dead_letters

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.dead_letters.reader import find_dead_letters
from eventbridge.dead_letters.selection import Selection, name_of
from eventbridge.errors import NotFoundError
from eventbridge.runtime.open import open_runtime

SINCE = "2000-01-01T00:00:00Z"
#: A rule without an owner, beside the rule `refused` of the owner `crm` on the same bus.
OTHER = "all-orders"


@pytest.fixture(scope="module")
def token(delivered: Server) -> str:
    """A token limited to the owner crm, with all scopes."""
    return delivered.installation.token("crm", "read", "operate", "publish:*", owners=["crm"])


@pytest.fixture(scope="module")
def crm(delivered: Server, token: str) -> Iterator[httpx.Client]:
    """A client with that token."""
    with delivered.client(token) as client:
        yield client


def test_nothing_reveals_the_rules_of_others(delivered: Server, token: str, crm: httpx.Client) -> None:
    """No document and no page has the name of another owner's rule: it is left out, or the call is refused."""
    given = {
        "hour": "2020-01-01T00:00:00Z",
        "bus": "orders",
        "rule": "refused",
        "target": "crm",
        "event_id": "o2",
        "type": "order.placed",
    }
    paths = [path for path, calls in crm.get("/openapi.json").json()["paths"].items() if "get" in calls]
    responses = {
        path: crm.get(path.format_map(given | dict.fromkeys(("name", "batch", "replay", "redrive"), "0")))
        for path in paths
    }
    with delivered.client() as browser:
        browser.post("/page/login", data={"token": token})
        asked = pages_of(delivered) | {path: path for path in ("/events?bus=orders", f"/rules/{OTHER}")}
        pages = {route: browser.get(f"/page{path}") for route, path in asked.items()}

    refused = sorted(path for path, response in responses.items() if response.status_code == 403)
    assert refused == [
        *("/metrics", "/v1/actions", "/v1/audit", "/v1/batches", "/v1/batches/{batch}", "/v1/chunks", "/v1/pools"),
        *("/v1/quality", "/v1/quality/{hour}", "/v1/rule-changes"),
    ]
    revealing = [path for path, response in (responses | pages).items() if OTHER in response.text]
    assert revealing == [f"/rules/{OTHER}"]  # it says that the rule does not exist
    assert {route: page.status_code for route, page in pages.items() if page.status_code != 200} == {
        **dict.fromkeys(("/actions", "/backtest", "/backtests", "/batches", "/batches/{batch_id}"), 403),
        "/backtests/{backtest_id}": 403,
        "/batches/{batch_id}/chunks/{chunk_id}": 403,
        **dict.fromkeys(("/request", "/rules/{name}/test", "/targets/{rule}/{name}/try"), 403),  # it shows a payload
        f"/rules/{OTHER}": 404,
    }


def test_dead_letters_of_others_are_hidden(delivered: Server) -> None:
    """Neither those of their rules, in a list or by name, nor malformed events of their buses."""
    env = delivered.installation.env
    with closing(open_runtime(Settings.from_mapping(env), connections_from_environment(env))) as runtime:
        all_of_them = list(dead_letters(runtime, Selection()))
        others = runtime.restrict_to_owners({"billing"})

        assert sorted(each["rule"] or "" for each in all_of_them) == ["", "refused"]
        assert list(dead_letters(others, Selection())) == []
        for each in all_of_them:
            with pytest.raises(NotFoundError):
                find_dead_letters(others, name_of(each))


def test_own_objects_are_shown(crm: httpx.Client) -> None:
    """The rule with its target and dead letters, and the events of its bus with their traces."""
    entries = crm.get("/v1/dead-letters").json()["dead_letters"]
    (event,) = crm.get("/v1/events/o2").json()["events"]

    assert list(crm.get("/v1/rules").json()["rules"]) == ["refused"]
    assert [(each["rule"], each["target"]) for each in crm.get("/v1/targets").json()["targets"]] == [("refused", "crm")]
    assert sorted(each["rule"] or "" for each in entries) == ["", "refused"]
    assert [each["bus"] for each in crm.get("/v1/buses").json()["buses"]] == ["orders"]
    assert {each["rule"] for each in (*event["rules"], *event["deliveries"])} == {"refused"}
    assert len(crm.get("/v1/events", params={"bus": "orders"}).json()["events"]) == 3


def test_objects_of_others_cannot_be_changed(delivered: Server, token: str, crm: httpx.Client) -> None:
    """Rules of others are not found, redrives and replays need own rules, and buses of others take no events."""
    replay = {"bus": "orders", "from": SINCE}
    statuses = [
        crm.post(f"/v1/rules/{OTHER}/pause").status_code,
        crm.post(f"/v1/targets/{OTHER}/archive/send", json={"event": order(9)}).status_code,
        crm.post(f"/v1/rules/{OTHER}/release", json={}).status_code,
        crm.post("/v1/redrives", json={"everything": True, "dry_run": True}).status_code,
        crm.post("/v1/redrives", json={"rule": OTHER}).status_code,
        crm.post("/v1/replays", json=replay | {"as_of": "original"}).status_code,
        crm.post("/v1/replays", json=replay | {"rules": [OTHER]}).status_code,
        crm.post("/v1/buses/orders/events", json=order(9), headers={"content-type": "application/cloudevents+json"}),
    ]
    with delivered.client() as browser:
        browser.post("/page/login", data={"token": token})
        paused = post(browser, f"/rules/{OTHER}/operate", action="pause rule")

    assert statuses[:-1] == [404, 404, 404, 400, 400, 400, 400]
    assert (statuses[-1].status_code, "no owner" in statuses[-1].json()["detail"]) == (403, True)
    assert paused.status_code == 404
    assert crm.post("/v1/redrives", json={"rule": "refused", "dry_run": True}).json()["taken"] == [
        {"of": "refused/crm", "count": 1}
    ]
    assert crm.post("/v1/replays", json=replay | {"rules": ["refused"], "dry_run": True}).status_code == 200
