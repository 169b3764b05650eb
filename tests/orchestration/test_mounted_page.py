"""The page within Airflow's own application: Airflow's login and permissions control access."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from airflow import settings as airflow_settings
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.revoked_token import RevokedToken
from fastapi import FastAPI

from eventbridge.airflow.plugin import EventBridgePlugin
from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime

# Airflow's own application imports Starlette's test client, which warns of the client library that it finds.
pytestmark = pytest.mark.filterwarnings("ignore::starlette.exceptions.StarletteDeprecationWarning")

RULES = """
buses: {orders: {source: {type: embedded}}}
rules:
  shop: {owner: shop, bus: orders, pattern: {}, targets: {file: {type: file, path: /tmp/never-written/y.jsonl}}}
  all: {bus: orders, pattern: {}, targets: {file: {type: file, path: /tmp/never-written/x.jsonl}}}
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """An installation with one rule."""
    folder = tmp_path_factory.mktemp("mounted")
    (folder / "rules").mkdir()
    (folder / "rules" / "rules.yaml").write_text(RULES)
    environ = {"EVENTBRIDGE_HOME": str(folder / "home"), "EVENTBRIDGE_RULES_FOLDER": str(folder / "rules")}
    opened = open_runtime(Settings.from_mapping(environ), connections_from_environment(environ))
    # The only table of Airflow's database that is read: revoked tokens.
    RevokedToken.metadata.create_all(airflow_settings.get_engine(), [RevokedToken.__table__])
    (mounted,) = EventBridgePlugin.fastapi_apps
    mounted["app"].state.runtime = None  # of another test of this process
    yield opened
    mounted["app"].state.runtime = None
    opened.close()


@pytest.fixture(autouse=True)
def environment(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment variables of the installation."""
    monkeypatch.setenv("EVENTBRIDGE_HOME", str(runtime.settings.home))
    monkeypatch.setenv("EVENTBRIDGE_RULES_FOLDER", str(runtime.settings.rules_folder))
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "x" * 64)


def airflow_app() -> FastAPI:
    """Return Airflow's own application, with the plug-in's mounted as Airflow mounts it."""
    from airflow.api_fastapi.app import create_app

    return create_app()


@pytest.fixture(scope="module")
def airflow(runtime: Runtime) -> FastAPI:
    """Airflow's application at the root of its server."""
    return airflow_app()


def ask(app: FastAPI, role: str, method: str, path: str, team: str = "", **content: Any) -> httpx.Response:
    """Return the response of Airflow's application to a user with a role of the simple auth manager; "": without a
    login.
    """
    from airflow.api_fastapi.app import get_auth_manager

    async def call() -> httpx.Response:
        cookies = {}
        if role:
            user = SimpleAuthManagerUser(username="ann", role=role, teams=[team] if team else None)
            cookies = {"_token": get_auth_manager().generate_jwt(user)}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow", cookies=cookies) as client:
            return await client.request(method, path, **content)

    return asyncio.run(call())


def test_airflows_user_sees_the_page(airflow: FastAPI) -> None:
    """There is no other login; Airflow may frame the page, which follows its theme."""
    response = ask(airflow, "viewer", "GET", "/eventbridge/page")

    assert response.status_code == 200
    assert [word for word in ("All targets are healthy", "theme.js") if word not in response.text] == []
    assert "frame-ancestors 'self'" in response.headers["content-security-policy"]
    assert 'href="/eventbridge/page/rules"' in response.text


def test_without_a_login_the_page_links_to_airflows_login(airflow: FastAPI) -> None:
    """No page shows anything of the installation."""
    responses = [ask(airflow, "", "GET", f"/eventbridge/page{path}") for path in ("", "/event?id=1", "/rules/all")]

    assert [response.status_code for response in responses] == [401] * 3
    assert all("/auth/login" in response.text and "never-written" not in response.text for response in responses)


def test_links_have_the_base_path_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Airflow has a base path, the links of the page have it too."""
    monkeypatch.setattr("airflow.api_fastapi.app.API_ROOT_PATH", "/af/")  # read from `base_url` at the import
    response = ask(airflow_app(), "admin", "GET", "/af/eventbridge/page/rules")

    assert response.status_code == 200
    assert 'href="/af/eventbridge/page/rules/all"' in response.text


def test_an_invalid_value_shows_an_error_page(airflow: FastAPI) -> None:
    """A browser gets an HTML page, not JSON."""
    unknown, wrong = (
        ask(airflow, "viewer", "GET", "/eventbridge/page/rules/none"),
        ask(airflow, "viewer", "GET", "/eventbridge/page/dead-letters?limit=x"),
    )

    assert (unknown.status_code, wrong.status_code) == (404, 422)
    assert all(response.headers["content-type"].startswith("text/html") for response in (unknown, wrong))
    assert "no rule" in unknown.text


def test_a_viewer_cannot_change_anything(airflow: FastAPI, runtime: Runtime) -> None:
    """A role that may trigger the DAGs can pause a rule; a role that may only read, or another site, is refused."""
    key = {
        role: key_of(ask(airflow, role, "GET", "/eventbridge/page/rules/all/test").text) for role in ("viewer", "user")
    }
    own, foreign = {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "cross-site"}

    def pause(role: str, headers: dict[str, str]) -> int:
        content = {"data": {"key": key[role], "action": "pause rule"}, "headers": headers}
        return ask(airflow, role, "POST", "/eventbridge/page/rules/all/operate", **content).status_code

    refused = [pause("viewer", own), pause("user", foreign), pause("user", {})]
    before = runtime.ledger.overrides.all()
    done = pause("user", own)

    assert (refused, before, done) == ([403, 403, 403], [], 303)
    assert [(each.kind, each.set_by) for each in runtime.ledger.overrides.all()] == [("paused", "ann")]


def test_a_program_uses_airflows_bearer(airflow: FastAPI, runtime: Runtime) -> None:
    """The API accepts Airflow's bearer token with the permissions of the page, but no cookie, as other sites can send
    it.
    """
    from airflow.api_fastapi.app import get_auth_manager

    def call(role: str, method: str, path: str, **content: Any) -> httpx.Response:
        bearer = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ann", role=role))
        return ask(airflow, "", method, path, headers={"authorization": f"Bearer {bearer}"}, **content)

    target = "/eventbridge/v1/targets/all/file"
    statuses = [
        ask(airflow, "admin", "GET", "/eventbridge/v1/status").status_code,
        call("viewer", "GET", "/eventbridge/v1/status").status_code,
        call("viewer", "POST", f"{target}/pause").status_code,
        call("user", "POST", f"{target}/pause").status_code,
        ask(airflow, "", "GET", "/eventbridge/v1/status", headers={"authorization": "Bearer x"}).status_code,
    ]
    set_by = [each.set_by for each in runtime.ledger.overrides.all() if each.target == "file" and each.rule == "all"]
    call("user", "POST", f"{target}/resume")

    assert statuses == [401, 200, 403, 200, 403]
    assert set_by == ["user ann"]
    assert call("admin", "GET", "/eventbridge/v1/actions").json()["actions"][0]["by"] == "user ann"


def test_a_team_sees_and_touches_what_it_owns(airflow: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Airflow has teams, an owner is a team: its users see its rules, other users none, and an admin all."""
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    rules = "/eventbridge/page/rules"
    users = (("user", "shop"), ("user", "b"), ("admin", ""))
    pages = [ask(airflow, role, "GET", rules, team).text for role, team in users]
    key = key_of(ask(airflow, "user", "GET", f"{rules}/shop/test", "shop").text)

    def operate(rule: str, action: str) -> int:
        form = {"data": {"key": key, "action": action}, "headers": {"sec-fetch-site": "same-origin"}}
        return ask(airflow, "user", "POST", f"{rules}/{rule}/operate", "shop", **form).status_code

    done = [operate("shop", "pause rule"), operate("shop", "resume rule"), operate("all", "pause rule")]

    assert ["/page/rules/shop" in page for page in pages] == [True, False, True]
    assert ["/page/rules/all" in page for page in pages] == [False, False, True]
    assert done == [303, 303, 404]


def key_of(page: str) -> str:
    """Return the key of the form on a page."""
    return page.partition('name="key" value="')[2].partition('"')[0]


@contextmanager
def airflows_server(app: FastAPI) -> Iterator[socket.socket]:
    """Serve Airflow's application by uvicorn as Airflow configures it, and yield a connection to it."""
    config = uvicorn.Config(app, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=server.run, args=([listener],))
        serving.start()
        with socket.create_connection(listener.getsockname(), timeout=20) as client:
            yield client
        server.should_exit = True
        serving.join()


def responses_to(client: socket.socket, *segments: bytes) -> bytes:
    """Return all that the server sends until it closes the connection."""
    for segment in segments:
        client.sendall(segment)
    content = b""
    while part := client.recv(65536):
        content += part
    return content


@pytest.mark.parametrize("together", [True, False])
def test_a_call_whose_body_airflows_server_may_lose_is_refused(airflow: FastAPI, together: bool) -> None:
    """uvicorn reads no body after the head of an upgrade, and takes a later body for a call, which gets no response."""
    hidden = b"GET /eventbridge/v1/rules HTTP/1.1\r\nhost: x\r\n\r\n"
    head = b"POST /eventbridge/v1/redrives HTTP/1.1\r\nhost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    head += b"content-length: %d\r\n\r\n" % len(hidden)

    with airflows_server(airflow) as client:
        response = responses_to(client, *([head + hidden] if together else [head, hidden]))

    assert response.count(b"HTTP/1.1 ") == 1
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["code"] == "upgrade_refused"
    assert "Send it without the header Upgrade" in json.loads(body)["detail"]


def test_a_call_without_a_body_may_offer_an_upgrade(airflow: FastAPI) -> None:
    """Java's HttpClient does so with each call; there is nothing to lose."""
    call = b"GET /eventbridge/v1/rules HTTP/1.1\r\nhost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"

    with airflows_server(airflow) as client:
        assert responses_to(client, call).startswith(b"HTTP/1.1 401 ")
