"""The API tells what the command line tells, to tokens that may look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from api.server import Installation, Server, order

#: One rule whose target never takes anything, so that its deliveries are dead letters at once.
REFUSED = """
rules:
  refused:
    bus: orders
    pattern: {{type: [order.placed], data: {{amount: [{{numeric: [">", 1]}}]}}}}
    targets:
      crm: {{type: http, url: "http://127.0.0.1:9/nowhere", allow_http: true, retry: {{policy: own, attempts: 0}}}}
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose installation has delivered three orders, one of them to no avail, and got one that is none."""
    folder = tmp_path_factory.mktemp("told")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8")
    (folder / "rules" / "refused.yaml").write_text(REFUSED.format(folder=folder))
    events = folder / "orders.jsonl"
    hostile = order(2, data={"amount": 2, "text": "<script>alert(1)</script>"})
    events.write_text("\n".join([*(json.dumps(each) for each in (order(0), order(1), hostile)), "no event"]))
    made.run("bus", "publish", "orders", str(events))
    made.run("deliver", "--runner", "orders", "--until-idle")
    with Server(made) as running:
        yield running


@pytest.fixture(scope="module")
def looking(told: Server) -> Iterator[httpx.Client]:
    """A client whose token may look."""
    with told.client(told.installation.token("looker", "read")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/rules", ["rules", "show"]),
        ("/rules/refused", ["rules", "show", "refused"]),
        ("/targets", ["targets", "list"]),
        ("/events/o2", ["why", "o2"]),
        ("/audit", ["audit"]),
    ],
)
def test_a_document_is_that_of_the_command_line(
    path: str, command: list[str], told: Server, looking: httpx.Client
) -> None:
    """What `--json` prints is what the API answers."""
    answer = looking.get(path)

    assert answer.status_code == 200
    assert answer.json() == json.loads(told.installation.run(*command, "--json"))


def test_status_is_that_of_the_command_line(told: Server, looking: httpx.Client) -> None:
    """But for the time at which it was asked."""
    found = looking.get("/status", params={"batches": 3}).json()

    printed = json.loads(told.installation.run("status", "--batches", "3", "--json"))
    assert found.keys() == printed.keys()
    assert [found[key] for key in ("queues", "batches", "parked")] == [
        printed[key] for key in ("queues", "batches", "parked")
    ]


def test_dead_letters_are_chosen_by_parameters(looking: httpx.Client) -> None:
    """By reason, at most so many, and one whole by its name."""
    both = looking.get("/dead-letters").json()
    (one,) = looking.get("/dead-letters", params={"rule": "refused"}).json()["dead_letters"]
    first = looking.get("/dead-letters", params={"limit": 1}).json()
    whole = looking.get(f"/dead-letters/{one['name']}").json()

    assert sorted(each["event_id"] or each["reason"] for each in both["dead_letters"]) == ["Malformed", "o2"]
    assert (len(first["dead_letters"]), first["more"], both["more"]) == (1, True, False)
    assert json.loads(whole["event"])["id"] == "o2"


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/rules/refuse", 404, "refused"),
        ("/events/o9", 404, "o9"),
        ("/dead-letters?reason=Never", 400, "unknown reason 'Never'"),
        ("/dead-letters?limit=0", 422, "limit"),
        ("/events/o1?since=soon", 400, "not a time"),
        ("/audit?batch=ff", 404, "there is no batch 'ff'"),
    ],
)
def test_what_cannot_be_told_is_a_problem(path: str, status: int, said: str, looking: httpx.Client) -> None:
    """As RFC 9457 has it, with what to do."""
    answer = looking.get(path)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert said in answer.json()["detail"]


def test_only_a_token_that_may_look_is_told_anything(told: Server) -> None:
    """401 without one, 403 with one to publish; the page asks for one."""
    paths = ["/status", "/rules", "/targets", "/dead-letters", "/events/o1", "/audit"]
    with told.client() as nobody, told.client(told.installation.token("shop", "publish:*")) as publisher:
        assert {nobody.get(path).status_code for path in paths} == {401}
        assert {publisher.get(path).status_code for path in paths} == {403}


PAGES = ["", "/event?id=o2", "/rules", "/rules/refused", "/targets", "/dead-letters", "/batches"]


@contextmanager
def logged_in(server: Server, name: str) -> Iterator[httpx.Client]:
    """Open a browser that has sent the form."""
    with server.client() as browser:
        browser.post("/page/login", data={"token": server.installation.token(name, "read")})
        yield browser


def test_every_page_shows_what_it_is_about(told: Server) -> None:
    """Each names what is there; no page lets a script in, or is kept by anybody in between."""
    wanted: list[Any] = ["orders", "NOT MET", "refused", "nowhere", "crm", "Malformed", "committed"]
    with logged_in(told, "viewer") as browser:
        pages = [browser.get(f"/page{path}") for path in PAGES]

    assert [page.status_code for page in pages] == [200] * len(PAGES)
    assert [text for text, page in zip(wanted, pages, strict=True) if text not in page.text] == []
    assert all("default-src 'none'" in page.headers["content-security-policy"] for page in pages)
    assert all(page.headers["cache-control"] == "no-store" for page in pages)


def test_a_payload_is_shown_as_text(told: Server) -> None:
    """HTML within an event is text on the page of the event and of the dead letter."""
    with logged_in(told, "careful") as browser:
        (letter,) = (
            told.client(told.installation.token("lister", "read"))
            .get("/dead-letters", params={"rule": "refused"})
            .json()["dead_letters"]
        )
        pages = [browser.get(f"/page{path}").text for path in ("/event?id=o2", f"/dead-letters/{letter['name']}")]

    assert all("&lt;script&gt;alert(1)&lt;/script&gt;" in page for page in pages)
    assert all("<script" not in page for page in pages)


def test_without_login_one_sees_the_form_alone(told: Server) -> None:
    """Every page asks for a token; one that may only publish is told so; the cookie is no script's."""
    with told.client() as browser:
        asked = [browser.get(f"/page{path}") for path in PAGES]
        refused = browser.post("/page/login", data={"token": told.installation.token("writer", "publish:orders")})
        taken = browser.post("/page/login", data={"token": told.installation.token("reader", "read")})

    assert {(page.status_code, "o2" in page.text) for page in asked} == {(401, False)}
    assert (refused.status_code, "has no scope read" in refused.text) == (401, True)
    assert "set-cookie" not in refused.headers
    cookie = taken.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/page"))


def test_a_form_of_another_site_changes_nothing(told: Server) -> None:
    """Neither logs in nor out."""
    token = told.installation.token("victim", "read")
    with told.client() as browser:
        answer = browser.post("/page/login", data={"token": token}, headers={"origin": "https://evil.example"})

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
