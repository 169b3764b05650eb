"""Calls of operators: test, check, send, enable, release, replay; Idempotency-Key and paged lists."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from api.server import Server, order

SINCE = "2000-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def operator(delivered: Server) -> Iterator[httpx.Client]:
    """A client whose token may read and operate."""
    with delivered.client(delivered.installation.token("actor", "operate", "read", "payloads")) as client:
        yield client


def test_a_pattern_is_tested_on_given_and_archived_events(operator: httpx.Client) -> None:
    """The rule's pattern on an archived event, another pattern on a given one; the call needs one of both events."""
    own = operator.post("/v1/rules/refused/test", json={"event_id": "o2"})
    other = operator.post("/v1/rules/refused/test", json={"event": order(7), "pattern": {"type": ["order.paid"]}})
    neither = operator.post("/v1/rules/refused/test", json={})

    assert (own.status_code, own.json()["matched"]) == (200, True)
    assert (other.json()["matched"], other.json()["conditions"][0]["met"]) == (False, False)
    assert (neither.status_code, "event_id" in neither.json()["detail"]) == (400, True)


def test_a_target_is_checked_tested_and_enabled(operator: httpx.Client) -> None:
    """Each call returns its result; an unknown target is 404."""
    path = "/v1/targets/all-orders/archive"
    checked = operator.post(f"{path}/check").json()
    sent = operator.post(f"{path}/send", json={"event": order(8)}).json()
    enabled = operator.post(f"{path}/enable").json()

    assert (checked["reached"], checked["error"]) == (True, None)
    assert sent["accepted"] is True
    assert enabled == {"rule": "all-orders", "target": "archive", "released": 0}
    assert operator.get(path).json()["state"] == "ok"
    assert operator.post("/v1/targets/all-orders/never/check").status_code == 404
    assert operator.post("/v1/rules/all-orders/release", json={}).json()["hold"] is None


def test_a_call_with_a_key_is_done_once(operator: httpx.Client) -> None:
    """Two requests with one key record one replay; another call with the key is refused."""
    call = {"bus": "orders", "from": SINCE, "rules": ["all-orders"]}
    key = {"Idempotency-Key": "replay-1"}
    would = operator.post("/v1/replays", json=call | {"dry_run": True}).json()
    first = operator.post("/v1/replays", json=call, headers=key)
    again = operator.post("/v1/replays", json=call, headers=key)
    other = operator.post("/v1/replays", json=call | {"rate": 5}, headers=key)
    replay = first.json()["replay_id"]
    words = [operator.post(f"/v1/replays/{replay}/{word}").json()["state"] for word in ("pause", "resume", "cancel")]

    assert would["taken"] == 3
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert other.status_code == 422
    assert words == ["paused", "running", "cancelled"]
    assert operator.get("/v1/replays").json()["replays"][0]["replay_id"] == replay


def test_lists_are_paged(operator: httpx.Client) -> None:
    """The header Link leads to the next page, and all pages have each item once."""
    lists: dict[str, Callable[[Any], list[Any]]] = {
        "/v1/rules": lambda found: sorted(found["rules"]),
        "/v1/targets": lambda found: [(each["rule"], each["target"]) for each in found["targets"]],
        "/v1/rule-changes": lambda found: [(each["rule"], each["version"]) for each in found["rule_changes"]],
        "/v1/stats": lambda found: [(each["rule"], each["day"]) for each in found["rules"]],
    }
    for path, names_in in lists.items():
        names = []
        following: str | None = f"{path}?limit=1"
        while following:
            response = operator.get(following)
            names += names_in(response.json())
            following = response.links.get("next", {}).get("url")
        assert sorted(names) == sorted(names_in(operator.get(path).json())), path
        assert len(names) > 1
    assert operator.get("/v1/targets?cursor=nonsense").status_code == 400


def test_a_body_without_a_content_type_is_refused(operator: httpx.Client) -> None:
    """As curl sends it by default. A wrong method gets a hint at the list of calls."""
    form = operator.post("/v1/redrives", content='{"rule": "refused", "dry_run": true}')
    gone = operator.delete("/v1/rules/refused")

    assert (form.status_code, gone.status_code, gone.headers["allow"]) == (422, 405, "GET")
    assert "Send it with Content-Type: application/json" in form.json()["detail"]
    assert "/openapi.json" in gone.json()["detail"]


def test_other_lists_are_served(operator: httpx.Client) -> None:
    """Groups of dead letters, stats, pools, schemas, checked hours."""
    groups = operator.get("/v1/dead-letter-groups").json()["groups"]
    (schema,) = operator.get("/v1/schemas/order.placed").json()["schemas"]
    first = operator.get("/v1/schemas", params={"limit": 1}).json()

    assert sorted((each["rule"] or "", each["reason"], each["count"]) for each in groups) == [
        ("", "malformed", 1),
        ("refused", "maximum_retry_attempts", 1),
    ]
    for each in groups:  # the error of a group finds its dead letters
        chosen = {"reason": each["reason"], "error": each["error"]}
        assert len(operator.get("/v1/dead-letters", params=chosen).json()["dead_letters"]) == each["count"]
    assert schema["sampled"] == 3
    assert ([each["type"] for each in first["schemas"]], first["next"]) == (["order.placed"], None)
    assert {each["rule"] for each in operator.get("/v1/stats").json()["rules"]} >= {"all-orders"}
    assert (operator.get("/v1/pools").status_code, operator.get("/v1/quality").json()["quality_checks"]) == (200, [])
    assert operator.get("/v1/quality/2020-01-01T00:00:00Z").status_code == 404
    assert operator.get("/v1/quality/9999-12-31T23:59:59Z").status_code == 400
    assert {each["state"] for each in operator.get("/v1/chunks").json()["chunks"]} == {"completed"}
    failed = operator.get("/v1/chunks?failures=true").json()["chunks"]
    assert ["refused/crm" in each["targets"] for each in failed] == [True]
    changes = operator.get("/v1/rule-changes").json()["rule_changes"]
    assert {each["rule"] for each in changes} == {"all-orders", "refused"}
    assert "shadow" in operator.get("/v1/rules/refused/shadows").json()["detail"]


def test_a_rule_file_is_checked_with_the_others(delivered: Server, operator: httpx.Client) -> None:
    """Like `rules check`: errors have their lines, conflicts with other files are found, and nothing is written."""
    file = delivered.installation.folder / "rules" / "orders.yaml"
    good = operator.post("/v1/rules/check", json={"file": "orders.yaml", "content": file.read_text()}).json()
    twice = operator.post("/v1/rules/check", json={"file": "new.yaml", "content": file.read_text()}).json()["errors"]
    wrong = operator.post("/v1/rules/check", json={"file": "new.yaml", "content": "rules:\n  r: {bus: order}\n"}).json()
    outside = operator.post("/v1/rules/check", json={"file": "../new.yaml", "content": ""})

    assert good == json.loads(delivered.installation.run("rules", "check", "--json"))
    assert {each["path"] for each in twice} == {"$.buses.orders", "$.buses.invoices", "$.rules.all-orders"}
    assert {(each["line"], each["path"]) for each in wrong["errors"]} == {(2, "$.rules.r"), (2, "$.rules.r.bus")}
    assert outside.status_code == 400
    assert not (file.parent / "new.yaml").exists()


def test_actions_are_recorded(delivered: Server, operator: httpx.Client) -> None:
    """With the token and the status, without the event, refused calls included; the list is paged."""
    path = "/v1/targets/all-orders/archive"
    delivered.installation.run("tokens", "create", "by-command", "--scope", "read")
    operator.post(f"{path}/send", json={"event": order(9)})
    operator.put("/v1/targets/never/archive/rate", json={"rate": "1/s"})
    newest = operator.get("/v1/actions", params={"limit": 1}).json()
    (older,) = operator.get("/v1/actions", params={"limit": 1, "cursor": newest["next"]}).json()["actions"]
    (refused,) = newest["actions"]

    commands = [
        each for each in operator.get("/v1/actions?limit=500").json()["actions"] if each["by"].startswith("command, ")
    ]
    made = [each for each in commands if "by-command" in each["asked"]]

    assert [(each["call"], each["status"]) for each in made] == [("eventbridge tokens create", 0)]
    assert made[0]["by"] == f"command, {getpass.getuser()}@{socket.gethostname()}"
    assert (refused["call"], refused["status"], refused["by"]) == (
        "PUT /v1/targets/never/archive/rate",
        404,
        "token actor",
    )
    assert json.loads(refused["asked"]) == {"rate": "1/s"}
    assert (older["call"], older["status"], older["asked"]) == (f"POST {path}/send", 200, "")
