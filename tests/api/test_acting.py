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

from eventbridge.client import ApiError, EventBridgeClient

SINCE = "2000-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def acting(delivered: Server) -> str:
    """A token that may read and operate."""
    return delivered.installation.token("actor", "operate", "read", "payloads")


@pytest.fixture(scope="module")
def operator(delivered: Server, acting: str) -> Iterator[httpx.Client]:
    """A client of bare requests whose token may read and operate."""
    with delivered.client(acting) as client:
        yield client


@pytest.fixture(scope="module")
def api(delivered: Server, acting: str) -> Iterator[EventBridgeClient]:
    """The typed client, whose token may read and operate."""
    with delivered.api(acting) as client:
        yield client


def test_a_pattern_is_tested_on_given_and_archived_events(api: EventBridgeClient) -> None:
    """The rule's pattern on an archived event, another pattern on a given one; the call needs one of both events."""
    own = api.post("rules", "refused", "test", body={"event_id": "o2"})
    other = api.post("rules", "refused", "test", body={"event": order(7), "pattern": {"type": ["order.paid"]}})
    with pytest.raises(ApiError, match=r"400 invalid_value: .*event_id"):
        api.post("rules", "refused", "test", body={})

    assert own["matched"] is True
    assert (other["matched"], other["conditions"][0]["met"]) == (False, False)


def test_a_target_is_checked_tested_and_enabled(api: EventBridgeClient) -> None:
    """Each call returns its result; an unknown target is not found."""
    checked = api.post("targets", "all-orders", "archive", "check")
    sent = api.post("targets", "all-orders", "archive", "send", body={"event": order(8)})
    enabled = api.post("targets", "all-orders", "archive", "enable")
    released = api.post("rules", "all-orders", "release", body={})
    with pytest.raises(ApiError, match="404 not_found"):
        api.post("targets", "all-orders", "never", "check")

    assert (checked["reached"], checked["error"]) == (True, None)
    assert sent["accepted"] is True
    assert enabled == {"rule": "all-orders", "target": "archive", "released": 0}
    assert (api.target("all-orders", "archive").state, released["hold"]) == ("ok", None)


def test_a_call_with_a_key_is_done_once(operator: httpx.Client, api: EventBridgeClient) -> None:
    """Two requests with one key record one replay; another call with the key is refused."""
    call = {"bus": "orders", "from": SINCE, "rules": ["all-orders"]}
    key = {"Idempotency-Key": "replay-1"}
    would = api.post("replays", body=call | {"dry_run": True})
    first = operator.post("/v1/replays", json=call, headers=key)
    again = operator.post("/v1/replays", json=call, headers=key)
    other = operator.post("/v1/replays", json=call | {"rate": 5}, headers=key)
    replay = first.json()["replay_id"]
    words = [api.post("replays", replay, word)["state"] for word in ("pause", "resume", "cancel")]

    assert would["taken"] == 3
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    assert other.status_code == 422
    assert words == ["paused", "running", "cancelled"]
    assert api.get("replays")["replays"][0]["replay_id"] == replay


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


def test_other_lists_are_served(api: EventBridgeClient) -> None:
    """Groups of dead letters, stats, pools, schemas, checked hours."""
    groups = api.get("dead-letter-groups")["groups"]
    (schema,) = api.get("schemas", "order.placed")["schemas"]
    first = api.get("schemas", limit=1)

    assert sorted((each["rule"] or "", each["reason"], each["count"]) for each in groups) == [
        ("", "malformed", 1),
        ("refused", "maximum_retry_attempts", 1),
    ]
    for each in groups:  # the error of a group finds its dead letters
        assert len(list(api.dead_letters(reason=each["reason"], error=each["error"]))) == each["count"]
    assert schema["sampled"] == 3
    assert ([each["type"] for each in first["schemas"]], first["next"]) == (["order.placed"], None)
    assert {each["rule"] for each in api.get("stats")["rules"]} >= {"all-orders"}
    assert (api.get("pools")["next"], api.get("quality")["quality_checks"]) == (None, [])
    with pytest.raises(ApiError, match="404 not_found"):
        api.get("quality", "2020-01-01T00:00:00Z")
    with pytest.raises(ApiError, match="400 invalid_value"):
        api.get("quality", "9999-12-31T23:59:59Z")
    assert {each["state"] for each in api.get("chunks")["chunks"]} == {"completed"}
    failed = api.get("chunks", failures=True)["chunks"]
    assert ["refused/crm" in each["targets"] for each in failed] == [True]
    changes = api.get("rule-changes")["rule_changes"]
    assert {each["rule"] for each in changes} == {"all-orders", "refused"}
    with pytest.raises(ApiError, match="shadow"):
        api.get("rules", "refused", "shadows")


def test_a_rule_file_is_checked_with_the_others(delivered: Server, api: EventBridgeClient) -> None:
    """Like `rules check`: errors have their lines, conflicts with other files are found, and nothing is written."""
    file = delivered.installation.folder / "rules" / "orders.yaml"
    good = api.post("rules", "check", body={"file": "orders.yaml", "content": file.read_text()})
    twice = api.post("rules", "check", body={"file": "new.yaml", "content": file.read_text()})["errors"]
    wrong = api.post("rules", "check", body={"file": "new.yaml", "content": "rules:\n  r: {bus: order}\n"})
    with pytest.raises(ApiError, match="400 invalid_value"):
        api.post("rules", "check", body={"file": "../new.yaml", "content": ""})

    assert good == json.loads(delivered.installation.run("rules", "check", "--json"))
    assert {each["path"] for each in twice} == {"$.buses.orders", "$.buses.invoices", "$.rules.all-orders"}
    assert {(each["line"], each["path"]) for each in wrong["errors"]} == {(2, "$.rules.r"), (2, "$.rules.r.bus")}
    assert not (file.parent / "new.yaml").exists()


def test_actions_are_recorded(delivered: Server, api: EventBridgeClient) -> None:
    """With the token and the status, without the event, refused calls included; the list is paged."""
    delivered.installation.run("tokens", "create", "by-command", "--scope", "read")
    api.post("targets", "all-orders", "archive", "send", body={"event": order(9)})
    with pytest.raises(ApiError, match="404 not_found"):
        api.set_rate("never", "archive", "1/s")
    newest = api.get("actions", limit=1)
    (older,) = api.get("actions", limit=1, cursor=newest["next"])["actions"]
    (refused,) = newest["actions"]

    commands = [each for each in api.items("actions") if each["by"].startswith("command, ")]
    made = [each for each in commands if "by-command" in each["asked"]]

    assert [(each["call"], each["status"]) for each in made] == [("eventbridge tokens create", 0)]
    assert made[0]["by"] == f"command, {getpass.getuser()}@{socket.gethostname()}"
    assert (refused["call"], refused["status"], refused["by"]) == (
        "PUT /v1/targets/never/archive/rate",
        404,
        "token actor",
    )
    assert json.loads(refused["asked"]) == {"rate": "1/s"}
    assert (older["call"], older["status"], older["asked"]) == (
        "POST /v1/targets/all-orders/archive/send",
        200,
        "",
    )
