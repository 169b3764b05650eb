"""A target whose every attempt fails, and whose deliveries wait for a retry, is listed as failing everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from api.server import Installation, Server, order

RULE = """
rules:
  forwarded:
    bus: orders
    pattern: {type: [order.placed]}
    targets:
      crm: {type: http, url: "http://127.0.0.1:9/nowhere", allow_http: true,
            retry: {policy: custom, max_retries: 5, initial_delay: 600s, max_delay: 600s}}
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose installation has a target that refused its only connection; the retry is due in ten minutes."""
    folder = tmp_path_factory.mktemp("failing")
    made = Installation(folder, EVENTBRIDGE_ALLOW_ADDRESSES="127.0.0.0/8")
    (folder / "rules" / "forwarded.yaml").write_text(RULE)
    (folder / "order.json").write_text(json.dumps(order(1)))
    made.run("events", "publish", "orders", str(folder / "order.json"))
    made.deliver("orders")
    with Server(made) as running:
        yield running


@pytest.fixture(scope="module")
def reader(failing: Server) -> Iterator[httpx.Client]:
    """A client that may read."""
    with failing.client(failing.installation.token("reader", "read")) as opened:
        yield opened


def test_the_api_and_the_command_line_list_it(failing: Server, reader: httpx.Client) -> None:
    """Its state is failing since its first failed attempt, with the reason, in lists and among what is not ok."""
    made = failing.installation
    lists = [
        reader.get("/v1/targets").json()["targets"],
        json.loads(made.run("targets", "list", "--json")),
        reader.get("/v1/status").json()["targets"],
        json.loads(made.run("status", "--json"))["targets"],
    ]

    for listed in lists:
        (crm,) = (each for each in listed if each["target"] == "crm")
        assert (crm["state"], crm["since"]) == ("failing", crm["failing_since"])
        assert crm["reason"] == "every attempt failed, and deliveries wait for a retry"
    assert "failing" in made.run("targets", "show", "forwarded/crm")


def test_the_page_shows_it_with_its_reason(failing: Server) -> None:
    """The overview names it in what needs attention, the list among unhealthy targets, and its page beside its name."""
    with failing.client() as browser:
        browser.post("/page/login", data={"token": failing.installation.token("viewer", "read")})
        pages = [browser.get(f"/page{path}").text for path in ("", "/targets", "/targets/forwarded/crm")]

    for shown in pages:
        assert '<span class="badge bad">failing</span>' in shown
        assert "every attempt failed, and deliveries wait for a retry" in shown
        assert 'title="unhealthy targets"' in shown
    assert "All targets are healthy" not in pages[1]
