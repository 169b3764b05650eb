"""What operators do by the API: try, check, send, enable, release, replay; once by an Idempotency-Key, page by page."""

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
def acting(told: Server) -> Iterator[httpx.Client]:
    """A client whose token may look and act."""
    with told.client(told.installation.token("actor", "operate", "read", "payloads")) as client:
        yield client


def test_a_pattern_is_tried_on_given_and_landed_events(acting: httpx.Client) -> None:
    """The rule's own pattern on an event that landed, another on one that is given; one of both is needed."""
    own = acting.post("/rules/refused/test", json={"event_id": "o2"})
    other = acting.post("/rules/refused/test", json={"event": order(7), "pattern": {"type": ["order.paid"]}})
    neither = acting.post("/rules/refused/test", json={})

    assert (own.status_code, own.json()["matched"]) == (200, True)
    assert (other.json()["matched"], other.json()["conditions"][0]["met"]) == (False, False)
    assert (neither.status_code, "event_id" in neither.json()["detail"]) == (400, True)


def test_a_target_is_checked_sent_to_and_enabled(acting: httpx.Client) -> None:
    """Each responds with what it came to; of a target that is none 404."""
    place = "/targets/all-orders/archive"
    checked = acting.post(f"{place}/check").json()
    sent = acting.post(f"{place}/send", json={"event": order(8)}).json()
    enabled = acting.post(f"{place}/enable").json()

    assert (checked["reached"], checked["trouble"]) == (True, None)
    assert sent["accepted"] is True
    assert enabled == {"rule": "all-orders", "target": "archive", "released": 0}
    assert acting.get(place).json()["state"] == "ok"
    assert acting.post("/targets/all-orders/never/check").status_code == 404
    assert acting.post("/rules/all-orders/release", json={}).json()["hold"] is None


def test_a_call_with_a_key_is_done_once(acting: httpx.Client) -> None:
    """A replay that is asked for twice with one key is one replay; with the key another call is refused."""
    call = {"bus": "orders", "since": SINCE, "rules": ["all-orders"]}
    key = {"Idempotency-Key": "replay-1"}
    would = acting.post("/replays", json=call | {"dry_run": True}).json()
    first = acting.post("/replays", json=call, headers=key)
    again = acting.post("/replays", json=call, headers=key)
    other = acting.post("/replays", json=call | {"rate": 5}, headers=key)
    replay = first.json()["replay_id"]
    words = [acting.post(f"/replays/{replay}/{word}").json()["state"] for word in ("pause", "resume", "cancel")]

    assert would["taken"] == 3
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert other.status_code == 422
    assert words == ["paused", "running", "cancelled"]
    assert acting.get("/replays").json()["replays"][0]["replay_id"] == replay


def test_lists_come_some_at_a_time(acting: httpx.Client) -> None:
    """The header Link leads to what follows, until all was told once."""
    told_of: dict[str, Callable[[Any], list[Any]]] = {
        "/rules": lambda found: sorted(found["rules"]),
        "/targets": lambda found: [(each["rule"], each["target"]) for each in found],
        "/rule-changes": lambda found: [(each["rule"], each["version"]) for each in found],
        "/stats": lambda found: [(each["rule"], each["day"]) for each in found["rules"]],
    }
    for path, names_in in told_of.items():
        names = []
        following: str | None = f"{path}?limit=1"
        while following:
            response = acting.get(following)
            names += names_in(response.json())
            following = response.links.get("next", {}).get("url")
        assert sorted(names) == sorted(names_in(acting.get(path).json())), path
        assert len(names) > 1
    assert acting.get("/targets?cursor=nonsense").status_code == 400


def test_a_body_that_says_not_what_it_is_is_told_so(acting: httpx.Client) -> None:
    """As curl sends it without a header; a method that an address has not leads to the list of calls."""
    form = acting.post("/operate", content='{"action": "pause rule", "rule": "refused"}')
    gone = acting.delete("/rules/refused")

    assert (form.status_code, gone.status_code, gone.headers["allow"]) == (422, 405, "GET")
    assert "Send it with Content-Type: application/json" in form.json()["detail"]
    assert "/openapi.json" in gone.json()["detail"]


def test_what_else_is_looked_at(acting: httpx.Client) -> None:
    """Groups of dead letters, stats, pools, schemas, checked hours."""
    groups = acting.get("/dead-letter-groups").json()["groups"]
    (schema,) = acting.get("/schemas/order.placed").json()
    first = acting.get("/schemas", params={"limit": 1}).json()

    assert sorted((each["rule"] or "", each["reason"], each["count"]) for each in groups) == [
        ("", "Malformed", 1),
        ("refused", "MaximumRetryAttempts", 1),
    ]
    for each in groups:  # what a group's error says finds its dead letters
        chosen = {"reason": each["reason"], "error": each["error"]}
        assert len(acting.get("/dead-letters", params=chosen).json()["dead_letters"]) == each["count"]
    assert schema["sampled"] == 3
    assert ([each["type"] for each in first["schemas"]], first["cursor"]) == (["order.placed"], None)
    assert {each["rule"] for each in acting.get("/stats").json()["rules"]} >= {"all-orders"}
    assert (acting.get("/pools").status_code, acting.get("/quality").json()) == (200, [])
    assert acting.get("/quality/2020-01-01T00:00:00Z").status_code == 404
    assert acting.get("/quality/9999-12-31T23:59:59Z").status_code == 400
    assert {each["state"] for each in acting.get("/chunks").json()} == {"completed"}
    assert ["refused/crm" in each["targets"] for each in acting.get("/chunks?failures=true").json()] == [True]
    assert {each["rule"] for each in acting.get("/rule-changes").json()} == {"all-orders", "refused"}
    assert "shadow" in acting.get("/rules/refused/shadows").json()["detail"]


def test_a_rule_file_is_checked_among_the_others(told: Server, acting: httpx.Client) -> None:
    """As `rules check` does: errors with their lines, those with other files too, and nothing is written."""
    file = told.installation.folder / "rules" / "orders.yaml"
    good = acting.post("/rules/check", json={"file": "orders.yaml", "content": file.read_text()}).json()
    twice = acting.post("/rules/check", json={"file": "new.yaml", "content": file.read_text()}).json()["errors"]
    wrong = acting.post("/rules/check", json={"file": "new.yaml", "content": "rules:\n  r: {bus: order}\n"}).json()
    outside = acting.post("/rules/check", json={"file": "../new.yaml", "content": ""})

    assert good == json.loads(told.installation.run("rules", "check", "--json"))
    assert {each["path"] for each in twice} == {"$.buses.orders", "$.buses.invoices", "$.rules.all-orders"}
    assert {(each["line"], each["path"]) for each in wrong["errors"]} == {(2, "$.rules.r"), (2, "$.rules.r.bus")}
    assert outside.status_code == 400
    assert not (file.parent / "new.yaml").exists()


def test_who_asked_for_what_is_kept(told: Server, acting: httpx.Client) -> None:
    """Each call by its token, without the event, with what response it got; a refused one too; page by page."""
    place = "/targets/all-orders/archive"
    told.installation.run("tokens", "create", "by-command", "--scope", "read")
    acting.post(f"{place}/send", json={"event": order(9)})
    acting.post("/operate", json={"action": "pause target", "rule": "never", "target": "archive"})
    newest = acting.get("/actions", params={"limit": 1}).json()
    (older,) = acting.get("/actions", params={"limit": 1, "cursor": newest["cursor"]}).json()["actions"]
    (refused,) = newest["actions"]

    commands = [
        each for each in acting.get("/actions?limit=500").json()["actions"] if each["by"].startswith("command, ")
    ]
    made = [each for each in commands if "by-command" in each["asked"]]

    assert [(each["call"], each["status"]) for each in made] == [("eventbridge tokens create", 0)]
    assert made[0]["by"] == f"command, {getpass.getuser()}@{socket.gethostname()}"
    assert (refused["call"], refused["status"], refused["by"]) == ("POST /operate", 404, "token actor")
    assert json.loads(refused["asked"])["rule"] == "never"
    assert (older["call"], older["status"], older["asked"]) == (f"POST {place}/send", 200, "")
