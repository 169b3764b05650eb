"""A caller with a token asks where the installation lies on its host: no response names its folders."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from api.pages import OWN
from api.server import Installation, Server, order
from fastapi import Response
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
    made.run("events", "publish", "orders", str(folder / "orders.jsonl"))
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
    entries = client.get("/v1/dead-letters").json()["dead_letters"]
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
    yield from ("/v1/events?bus=orders", "/page/event?id=o1", "/page/events?bus=orders", "/v1/dead-letters?whole=true")
    yield from ("/v1/chunks?failures=true", "/page/rules/numbers/test?event=o1")
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
        assert client.get("/v1/dead-letters").json()["unreadable"] != []


def linked(folder: Path) -> Installation:
    """Return an installation whose file target `log` is behind a link, and failed for an event."""
    made = Relative(folder)
    (folder / "log.jsonl").symlink_to(folder / "elsewhere.jsonl")
    (folder / "orders.jsonl").write_text(json.dumps(order(1, data={"text": "no number"})))
    made.run("events", "publish", "orders", str(folder / "orders.jsonl"))
    made.deliver("orders")
    return made


def posted(client: httpx.Client, target: str, **fields: str) -> httpx.Response:
    """Return the response to the form that tries a target."""
    path = f"/page/targets/numbers/{target}/try"
    (key,) = set(re.findall(r'name="key" value="([0-9a-f]+)"', client.get(path).text))
    return client.post(path, data={"key": str(key), **fields}, headers=OWN)


def test_no_response_names_the_folder_of_a_target_that_fails(tmp_path: Path) -> None:
    """Its error holds the path: in every list, and in the responses and pages that try the target."""
    event = json.dumps(order(2))
    with Server(linked(tmp_path)) as server, clients(server) as client:
        found = reported(server, client)
        tried = [
            client.post("/v1/targets/numbers/log/check"),
            client.post("/v1/targets/numbers/log/send", json={"event": json.loads(event)}),
            posted(client, "log", do="check"),
            posted(client, "log", body=event),
        ]

    assert found == {}
    assert {each.status_code for each in tried} == {200}
    assert not any(str(tmp_path) in each.text for each in tried)
    assert all("is a link, but file targets follow no links" in each.text for each in tried)
    assert "EVENTBRIDGE_FILE_TARGET_FOLDERS/log.jsonl" in tried[0].text


@pytest.mark.parametrize("kind", ["application/json", "application/problem+json", "text/html", "text/plain", "x/new"])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "PATCH"])
def test_a_new_route_hides_the_folders(kind: str, method: str, tmp_path: Path) -> None:
    """No route has to remember it, whatever its method, its status and its kind of text."""
    written = str(tmp_path / "home" / "x")
    with Installation(tmp_path).opened() as runtime:
        app = create_app(runtime)
        app.state.runtime = runtime  # as a server does when it starts

        def shown() -> Response:
            return Response(f"at {written}, file://{written}: {quote(written, safe='')}", 418, {}, kind)

        async def called() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x") as client:
                return await client.request(method, "/new")

        app.add_api_route("/new", shown, methods=[method])
        response = asyncio.run(called())

    assert response.status_code == 418
    assert response.text == "at EVENTBRIDGE_HOME/x, EVENTBRIDGE_HOME/x: EVENTBRIDGE_HOME%2Fx"


def test_a_form_keeps_the_text_that_is_sent_again(tmp_path: Path) -> None:
    """An event with a path of the installation is shown as it was pasted: what is sent again is the same event."""
    path = str(tmp_path / "home" / "files" / "x.jsonl")
    pasted = json.dumps(order(2, data={"file": path}))
    with Server(installed(tmp_path)) as server, clients(server) as client:
        response = posted(client, "crm", body=pasted)

    assert path in response.text.partition("<textarea")[2].partition("</textarea>")[0]


def test_errors_in_rule_files_are_named_in_the_folder(tmp_path: Path) -> None:
    """Batches continue with the previous rules, and `/v1/status` names the file relative to the folder."""
    made = installed(tmp_path)
    (tmp_path / "rules" / "orders.yaml").write_text(BROKEN)
    with Server(made) as server, clients(server) as client:
        assert reported(server, client) == {}
        assert {each["file"] for each in client.get("/v1/status").json()["errors"]} == {"orders.yaml"}


def test_rule_files_that_never_were_good_are_named_in_the_folder(tmp_path: Path) -> None:
    """There are no rules in force: the response is 503, with every error and its place in the file."""
    made = Relative(tmp_path)
    (tmp_path / "rules" / "orders.yaml").write_text(BROKEN)
    with Server(made) as server, clients(server) as client:
        responses = [
            client.get(path) for path in ("/v1/rules", "/v1/status", "/page", "/page/rules", "/v1/targets/numbers/crm")
        ]

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
        response = client.post("/v1/rules/check", json={"file": file, "content": content})
        (tmp_path / "rules" / "folder.yaml").symlink_to(tmp_path / "nowhere")
        other = client.post("/v1/rules/check", json={"file": file, "content": content})

    for each in (response, other):
        assert each.status_code == 200
        assert str(tmp_path) not in each.text
    assert {each["file"] for each in other.json()["errors"]} <= {file, "orders.yaml", "folder.yaml"}
    assert file in {each["file"] for each in response.json()["errors"]} | {"orders.yaml"}
