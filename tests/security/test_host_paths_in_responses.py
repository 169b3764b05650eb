"""A caller with a token asks where the installation lies on its host: no response names its folders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from api.pages import OWN
from api.server import Installation, Server, order
from fastapi.routing import APIRoute

from eventbridge.api.app import create_app

RULES = """
buses:
  orders: {source: {type: embedded, topics: [placed, paid], partitions: 2, start_at: earliest}}
rules:
  numbers:
    bus: orders
    pattern: {type: [order.placed]}
    targets:
      crm:
        type: file
        path: crm.jsonl
        transform: {form: JSONATA, value: "$number(data.text)"}
      log: {type: file, path: log.jsonl}
"""
BROKEN = "rules:\n  numbers: {bus: nowhere, patern: {}}\n"


class Relative(Installation):
    """An installation whose rules name no path of the host."""

    def write_rules(self, more: str = "") -> None:
        """Write the rule file."""
        (self.folder / "rules" / "orders.yaml").write_text(RULES)


def installed(folder: Path) -> Installation:
    """Return an installation with a delivered event and a dead letter."""
    made = Relative(folder)
    (folder / "orders.jsonl").write_text(json.dumps(order(1, data={"text": "no number"})))
    made.run("bus", "publish", "orders", str(folder / "orders.jsonl"))
    made.deliver("orders")
    return made


@contextmanager
def clients(server: Server) -> Iterator[httpx.Client]:
    """Yield a client that may do everything, logged in to the page too."""
    token = server.installation.token("all", "read", "operate", "payloads", "metrics")
    with server.client(token) as opened:
        opened.post("/page/login", data={"token": token}, headers=OWN)
        yield opened


def addresses(server: Server, client: httpx.Client) -> Iterator[str]:
    """Yield an address of each route that only reads: of the existing rule, event, dead letter and batch."""
    with server.installation.opened() as runtime:
        routes = [each for each in create_app(runtime).routes if isinstance(each, APIRoute)]
        batch = runtime.ledger.batches.find(limit=1)[0].batch_id
    entries = client.get("/dead-letters").json()["dead_letters"]
    dead_letter = entries[0]["name"] if entries else "x"
    names = {"rule": "numbers", "target": "crm", "bus": "orders", "batch": batch, "batch_id": batch, "event_id": "o1"}
    names |= {"type": "order.placed", "chunk": "0", "hour": "2026-01-01T00"}
    for route in routes:
        if "GET" in route.methods:
            about = {
                "name": dead_letter if "dead-letters" in route.path else "crm" if "targets" in route.path else "numbers"
            }
            given = {name: (names | about).get(name, "x") for name in route.param_convertors}
            yield route.path_format.format(**given)
    yield from ("/events?bus=orders", "/page/event?id=o1", "/page/events?bus=orders", "/dead-letters?whole=true")
    yield from ("/chunks?failures=true", "/page/rules/numbers/test?event=o1")
    yield "/page/request?id=o1&rule=numbers&target=log"


def reported(server: Server, client: httpx.Client) -> dict[str, str]:
    """Return where a response names a folder of the installation, by address."""
    folder = str(server.installation.folder)
    found = {}
    for path in set(addresses(server, client)):
        text = client.get(path).text
        if folder in text:
            at = text.index(folder)
            found[path] = text[max(0, at - 80) : at + 120]
    return found


def test_no_response_names_a_folder_of_the_host(tmp_path: Path) -> None:
    """All is well, and each route that only looks is asked."""
    with Server(installed(tmp_path)) as server, clients(server) as client:
        assert reported(server, client) == {}


def test_no_response_about_damaged_files_names_a_folder(tmp_path: Path) -> None:
    """Files of the store hold no table any more: what cannot be read is named within the store."""
    made = installed(tmp_path)
    for file in (tmp_path / "home").rglob("*.parquet"):
        file.write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    with Server(made) as server, clients(server) as client:
        assert reported(server, client) == {}
        assert client.get("/dead-letters").json()["unreadable"] != []


def test_errors_in_rule_files_are_named_in_the_folder(tmp_path: Path) -> None:
    """Batches continue with the previous rules, and `/status` names the file relative to the folder."""
    made = installed(tmp_path)
    (tmp_path / "rules" / "orders.yaml").write_text(BROKEN)
    with Server(made) as server, clients(server) as client:
        assert reported(server, client) == {}
        assert {each["file"] for each in client.get("/status").json()["errors"]} == {"orders.yaml"}


def test_rule_files_that_never_were_good_are_named_in_the_folder(tmp_path: Path) -> None:
    """There are no rules in force: the response is 503, with every error and its place in the file."""
    made = Relative(tmp_path)
    (tmp_path / "rules" / "orders.yaml").write_text(BROKEN)
    with Server(made) as server, clients(server) as client:
        responses = [client.get(path) for path in ("/rules", "/status", "/page", "/page/rules", "/targets/numbers/crm")]

    assert {each.status_code for each in responses} == {503}
    assert not any(str(tmp_path) in each.text for each in responses)
    assert re.search(r"^orders\.yaml:2:", responses[0].json()["detail"], re.MULTILINE)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("z.yaml", "rules: [\n"),
        ("z.yaml", BROKEN),
        ("z.yaml", RULES),  # all of it is defined twice
        ("a/b.yaml", ""),
    ],
)
def test_the_check_of_a_rule_file_names_files_in_the_folder(file: str, content: str, tmp_path: Path) -> None:
    """The file that was sent, and others that it does not go together with, are named relative to the folder."""
    made = Relative(tmp_path)
    (tmp_path / "rules" / "unreadable.yaml").mkdir()
    with Server(made) as server, clients(server) as client:
        response = client.post("/rules/check", json={"file": file, "content": content})
        (tmp_path / "rules" / "folder.yaml").symlink_to(tmp_path / "nowhere")
        other = client.post("/rules/check", json={"file": file, "content": content})

    for each in (response, other):
        assert each.status_code == 200
        assert str(tmp_path) not in each.text
    assert {each["file"] for each in other.json()["errors"]} <= {file, "orders.yaml", "folder.yaml"}
    assert file in {each["file"] for each in response.json()["errors"]} | {"orders.yaml"}
