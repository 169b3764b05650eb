"""A caller without the right to payloads learns nothing of what events hold: by no condition, count or error text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from api.pages import OWN
from api.server import Installation, Server, order
from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from eventbridge.api.app import create_app
from eventbridge.api.page.forms import operator_form, submitted_form
from eventbridge.api.payloads import HIDDEN, visible_quality, visible_rule_on_hold
from eventbridge.event.json_text import plain
from eventbridge.model.quality import Measure, QualityRecord, Subject
from eventbridge.model.rule_state import RuleOnHold

CARD = "4111111111111111"
#: Names of fields that hold a condition on events, or a rule that is run over them.
CONDITIONS = frozenset({"sql", "pattern", "where", "condition", "expression", "filter", "candidate", "subject"})
#: Names of parameters that choose by what every reader is shown: names, ids, types, sources, times, reasons.
#: `error` is looked for in what the caller may see only; `event_id` names an event, whose body is hidden.
SHOWN = frozenset(
    {
        *("bus", "rule", "target", "rules", "targets", "names", "name", "batch", "delivery", "id", "event", "event_id"),
        *("type", "source", "since", "until", "from", "to", "reason", "error", "find", "after", "cursor"),
    }
)
#: Names of parameters that select nothing: how much is returned, what is done, and the caller's own input.
OTHERS = frozenset(
    {
        # of queues; `q` of the page leads to pages that check their own parameters
        *("count", "delay", "q", "receipts", "visibility_timeout", "wait"),
        *("limit", "batches", "days", "samples", "span", "whole", "failures", "all", "file", "content"),
        *("status", "format", "cause", "attempt", "model", "only"),
        *("action", "value", "priority", "skip", "everything", "rate", "retransform", "again", "dry_run"),
        *(
            "accept",
            "word",
            "every_rule",
            "map",
            "dag",
            "run",
            "as_of",
            "ids",
            "same_ids",
            "skip_delivered",
            "topic",
            "idempotency-key",
            "call",
        ),
    }
)
#: Routes that take a condition and apply it to an event that the caller sends along, and to no other.
OWN_EVENT_ROUTES = {("POST", "/v1/rules/{rule}/test"), ("POST", "/page/rules/{name}/test")}
RULES = """
rules:
  numbers:
    bus: orders
    pattern: {{type: [order.placed]}}
    targets:
      crm:
        type: file
        path: {folder}/crm.jsonl
        transform: {{form: JSONATA, value: "$number(data.card & 'x')"}}
"""
NEEDED = "the scope payloads"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose archive holds a card's number, in a delivered event, a failed transform and a malformed event."""
    made = Installation(tmp_path_factory.mktemp("held"))
    (made.folder / "rules" / "numbers.yaml").write_text(RULES.format(folder=made.folder))
    malformed = order(2) | {"time": CARD}
    lines = [json.dumps(order(1, data={"card": CARD, "amount": 1})), json.dumps(malformed)]
    (made.folder / "orders.jsonl").write_text("\n".join(lines))
    made.run("events", "publish", "orders", str(made.folder / "orders.jsonl"))
    made.deliver("orders")
    made.backtest("numbers")
    with Server(made) as running:
        yield running


@pytest.fixture(scope="module")
def blind(held: Server) -> Iterator[httpx.Client]:
    """A client that may look and act, and see no payload; it is logged in to the page too."""
    token = held.installation.token("blind", "read", "operate")
    with held.client(token) as opened:
        opened.headers["connection"] = "close"  # the server may close one whose body it refused unread
        opened.post("/page/login", data={"token": token}, headers=OWN)
        yield opened


@pytest.fixture(scope="module")
def seeing(held: Server) -> Iterator[httpx.Client]:
    """A client that may see payloads too."""
    token = held.installation.token("seeing", "read", "operate", "payloads")
    with held.client(token) as opened:
        opened.headers["connection"] = "close"  # the server may close one whose body it refused unread
        opened.post("/page/login", data={"token": token}, headers=OWN)
        yield opened


def routes_of(held: Server) -> list[APIRoute]:
    """Return every route of the application."""
    with held.installation.opened() as runtime:
        app: FastAPI = create_app(runtime)
        return [each for each in app.routes if isinstance(each, APIRoute)]


def names_of(dependant: Dependant) -> set[str]:
    """Return the names of parameters, and of members of bodies, that a route reads."""
    found = {each.alias for each in (*dependant.query_params, *dependant.body_params, *dependant.header_params)}
    for each in dependant.body_params:
        model: Any = each.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            found |= set(model.model_fields)
    return found.union(*(names_of(each) for each in dependant.dependencies))


def takes_form(dependant: Dependant) -> bool:
    """Return whether a route reads a form of the page, whose fields no signature names."""
    return any(each.call in (submitted_form, operator_form) or takes_form(each) for each in dependant.dependencies)


def key_of(client: httpx.Client) -> str:
    """Return what proves that a form is of the client's login."""
    page = client.get("/page/rules/numbers/test").text
    return page.partition('name="key" value="')[2].partition('"')[0]


def path_of(route: APIRoute) -> str:
    """Return an address of a route: of an existing rule and target."""
    names = {"rule": "numbers", "name": "numbers", "target": "crm"}
    fields = {name: names.get(name, "x") for name in route.param_convertors}
    return route.path_format.format(**fields)


def test_every_condition_needs_the_right_to_payloads(held: Server, blind: httpx.Client) -> None:
    """Each route of the application that reads a field for a condition, or any form, refuses one without the right."""
    asked, responded = [], {}
    key = key_of(blind)
    for route in routes_of(held):
        names, form = names_of(route.dependant) & CONDITIONS, takes_form(route.dependant)
        for method in sorted(route.methods):
            if (method, route.path) in OWN_EVENT_ROUTES or not (names or form):
                continue
            asked.append((method, route.path))
            for name in names or {"sql", "pattern"}:
                value: Any = {"data": {"card": [CARD]}} if name == "pattern" else f"event->>'$.data.card' = '{CARD}'"
                text = value if isinstance(value, str) else json.dumps(value)
                needed = {"bus": "orders", "from": "1h", "rule": "numbers"}
                if form:
                    sent_form = needed | {"key": key, name: text}
                    response = blind.post(path_of(route), data=sent_form, headers=OWN)
                elif method == "GET":
                    response = blind.get(path_of(route), params=needed | {name: text})
                else:
                    response = blind.request(method, path_of(route), json={"bus": "orders", "from": "1h", name: value})
                responded[method, route.path, name] = response.status_code, NEEDED in response.text

    assert {("POST", "/v1/replays"), ("GET", "/page/replay"), ("POST", "/page/replay")} <= set(asked)
    assert {each for each, said in responded.items() if said != (403, True)} == set()


def test_every_parameter_is_known_to_choose_by_what_is_shown(held: Server) -> None:
    """A new parameter of a route is a condition on payloads, and refused above, or is named here as none."""
    names = set().union(*(names_of(each.dependant) for each in routes_of(held)))

    assert names - CONDITIONS - SHOWN - OTHERS == set()
    assert {"sql", "pattern", "subject"} <= names


def test_a_subject_is_looked_for_with_the_right(blind: httpx.Client, seeing: httpx.Client) -> None:
    """No list shows subjects without it, so the form of the page does not ask for one either."""
    shown = ["subject" in each.get("/page/events").text for each in (blind, seeing)]
    found = [each.get("/v1/events", params={"bus": "orders", "subject": "x"}) for each in (blind, seeing)]

    assert shown == [False, True]
    assert [each.status_code for each in found] == [403, 200]


def test_a_pattern_is_tried_on_ones_own_event_without_the_right(blind: httpx.Client) -> None:
    """A caller knows the event that it sends; an event of the archive needs the right."""
    pattern = {"type": ["order.paid"]}
    own = blind.post("/v1/rules/numbers/test", json={"event": order(7), "pattern": pattern})
    archived = blind.post("/v1/rules/numbers/test", json={"event_id": "o1", "pattern": pattern})

    assert (own.status_code, own.json()["matched"]) == (200, False)
    assert (archived.status_code, NEEDED in archived.text) == (403, True)


def test_a_dry_run_counts_nothing_by_a_condition(blind: httpx.Client, seeing: httpx.Client) -> None:
    """An event's own value and another one get the same response; a caller with the right gets the number."""
    call = {"bus": "orders", "from": "1h", "dry_run": True}
    guesses = [{"pattern": {"data": {"card": [card]}}} for card in (CARD, "5500000000000004")]
    calls = (blind.post("/v1/replays", json=call | guess) for guess in guesses)
    reported = {(each.status_code, each.text) for each in calls}
    known = [seeing.post("/v1/replays", json=call | guess).json()["taken"] for guess in guesses]

    assert (len(reported), {status for status, _ in reported}) == (1, {403})
    assert known == [1, 0]


def test_an_error_of_sql_quotes_no_event(seeing: httpx.Client) -> None:
    """A condition that fails on an event's content fails in fixed words, also with the right to payloads."""
    failing = "error(event->>'$.data.card')::boolean"
    casting = "(event->>'$.data.card' || 'x')::INT > 1"
    said = [
        seeing.get("/page/replay", params={"bus": "orders", "from": "1h", "sql": sql}).text
        for sql in (failing, casting)
    ]

    assert [(CARD in each, "fails on an event" in each) for each in said] == [(False, True), (False, True)]


#: What a caller without the right may ask that reports failed transforms and malformed events.
LOOKS = (
    *(
        "/v1/status",
        "/v1/dead-letters",
        "/v1/dead-letters?whole=true",
        "/v1/dead-letter-groups",
        "/v1/events/o1",
        "/v1/chunks?failures=1",
    ),
    *(
        "/v1/actions",
        "/v1/replays",
        "/v1/redrives",
        "/page",
        "/page/dead-letters",
        "/page/dead-letters?by=letter",
        "/page/event?id=o1",
        "/page/replays",
    ),
    *("/page/targets/numbers/crm", "/page/rules/numbers", "/page/actions", "/page/redrives", "/page/backtests"),
    *("/page/redrive?rule=numbers", "/v1/audit", "/v1/batches", "/page/batches"),
)


def test_the_detail_of_a_failed_transform_is_a_payload(blind: httpx.Client, seeing: httpx.Client) -> None:
    """`detail` of a dead letter that quotes its event is hidden in every list, group, page and story of an event."""
    names = [each["name"] for each in seeing.get("/v1/dead-letters").json()["dead_letters"]]
    batch = seeing.get("/v1/batches").json()["batches"][0]["batch_id"]
    chunk = f"/page/batches/{batch}/chunks/0"
    looks = [*LOOKS, *(f"{at}/{name}" for name in names for at in ("/v1/dead-letters", "/page/dead-letters"))]
    looks += [f"/page/batches/{batch}", f"/v1/batches/{batch}", chunk]
    hidden = {path: blind.get(path) for path in looks}
    shown = {path: CARD in seeing.get(path).text for path in looks}

    assert {path: each.status_code for path, each in hidden.items() if each.status_code not in (200, 404)} == {}
    assert [path for path, each in hidden.items() if CARD in each.text] == []
    assert (shown["/v1/dead-letters"], shown["/v1/dead-letter-groups"], shown["/page/dead-letters?by=letter"]) == (
        True,
        False,
        True,
    )
    assert len(names) == 2
    assert "hidden: needs the scope payloads" in hidden["/v1/dead-letters"].text


def test_a_search_of_errors_reveals_no_quoted_payload(blind: httpx.Client, seeing: httpx.Client) -> None:
    """Dead letters are found by text that the caller may see, in lists, groups and dry runs of redrives."""

    def found(client: httpx.Client, text: str) -> list[int]:
        listed = client.get("/v1/dead-letters", params={"error": text}).json()["dead_letters"]
        groups = client.get("/v1/dead-letter-groups", params={"error": text}).json()["groups"]
        page = client.get("/page/dead-letters", params={"error": text, "by": "letter"}).text.count(
            'href="/page/dead-letters/'
        )
        dry = client.post("/v1/redrives", json={"error": text, "dry_run": True}).json()
        return [len(listed), sum(each["count"] for each in groups), page, len(dry["left"])]

    assert found(seeing, CARD) == [2, 2, 2, 2]
    assert found(blind, CARD) == found(blind, "no such text") == [0, 0, 0, 0]


def test_a_condition_of_another_user_is_hidden(blind: httpx.Client, seeing: httpx.Client) -> None:
    """A replay, a redrive and the list of actions show their conditions only to callers with the right to payloads."""
    begun = seeing.post(
        "/v1/replays",
        json={"bus": "orders", "from": "1h", "pattern": {"data": {"card": [CARD]}}, "rules": ["numbers"]},
    )
    replay = begun.json()["replay_id"]
    seeing.post("/v1/redrives", json={"error": CARD})
    looks = ("/v1/replays", f"/v1/replays/{replay}", "/v1/redrives", "/v1/actions")
    pages = ("/page/redrives", f"/page/replays/{replay}", "/page/actions")

    assert [path for path in (*looks, *pages) if CARD not in seeing.get(path).text] == []
    assert [path for path in (*looks, *pages) if CARD in blind.get(path).text] == []


def _request(*, payloads: bool) -> Request:
    return Request({"type": "http", "state": {"payloads": payloads}})


def test_the_check_of_an_hour_reveals_no_value_of_an_event() -> None:
    """The least and the greatest value of a field are payloads; rates of the same field are not."""
    at, salary = datetime(2026, 3, 1, tzinfo=UTC), Subject("field", "numbers", "$.data.salary")
    rate, value = Measure(salary, "null_rate", 0.25), Measure(salary, "greatest_value", 987654.0, at_most=1000.0)
    record = QualityRecord(at, at, 1, 0, (rate, value), (value,), "")

    reported = json.dumps(plain(visible_quality(_request(payloads=False), record)))

    assert "987654" not in reported
    assert reported.count(HIDDEN) == 2
    assert "0.25" in reported
    assert visible_quality(_request(payloads=True), record) is record


def test_an_expectation_that_failed_names_no_value_of_an_event() -> None:
    """The reader still sees that the rule is on hold by an expectation."""
    held = RuleOnHold("numbers", "1", "expectation_failed: $.data.salary: greatest_value is 987,654", datetime.now(UTC))

    assert visible_rule_on_hold(_request(payloads=False), held).reason == f"expectation_failed: {HIDDEN}"
    assert visible_rule_on_hold(_request(payloads=True), held) is held
    of_counts = RuleOnHold("numbers", "1", "expectation_failed: matches is 12, expected at most 10", datetime.now(UTC))
    assert visible_rule_on_hold(_request(payloads=False), of_counts) is of_counts
