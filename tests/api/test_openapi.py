"""openapi.json describes the API's responses: Schemathesis calls it with valid and invalid data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from api.server import Installation, Server

from eventbridge.cli import app

HOOK = ", webhooks: {code: {signature: github, connection: code}}"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)


#: The call of each command; a text without a path is the reason why there is none.
BY_HTTP = {
    "audit": "GET /audit",
    "batches repair": "it writes files of the store: for administrators of the host",
    "events publish": "POST /buses/{bus}/events",
    "compile": "concerns the host",
    "redrives cancel": "POST /redrives/{redrive}/cancel",
    "dead-letters export": "GET /dead-letters",
    "dead-letters list": "GET /dead-letters",
    "redrives start": "POST /redrives",
    "redrives list": "GET /redrives",
    "dead-letters show": "GET /dead-letters/{name}",
    "deliver": "the server never delivers",
    "stats": "GET /stats",
    "heartbeat": "scheduled",
    "init": "concerns the host",
    "init-airflow": "concerns the host",
    "ledger copy": "concerns the host",
    "ledger migrate": "concerns the host",
    "maintain": "scheduled",
    "quality check": "scheduled; needs Great Expectations",
    "quality list": "GET /quality",
    "quality show": "GET /quality/{hour}",
    "replays start": "POST /replays",
    "replays cancel": "POST /replays/{replay}/{word}",
    "replays list": "GET /replays",
    "replays pause": "POST /replays/{replay}/{word}",
    "replays resume": "POST /replays/{replay}/{word}",
    "replays show": "GET /replays/{replay}",
    "rules backtest": "needs Spark",
    "rules check": "POST /rules/check",
    "rules diff": "needs Spark",
    "rules disable": "POST /operate",
    "rules enable": "POST /operate",
    "rules history": "GET /rule-changes",
    "rules pause": "POST /operate",
    "rules priority": "POST /operate",
    "rules publish": "rule files are the single source of truth: for their authors",
    "rules release": "POST /rules/{rule}/release",
    "rules resume": "POST /operate",
    "rules schema": "for editors on a laptop",
    "rules shadow": "GET /rules/{rule}/shadows",
    "rules show": "GET /rules/{rule}",
    "rules test": "POST /rules/{rule}/test",
    "schemas list": "GET /schemas",
    "schemas show": "GET /schemas/{type}",
    "serve": "concerns the host",
    "status": "GET /status",
    "targets check": "POST /targets/{rule}/{target}/check",
    "targets enable": "POST /targets/{rule}/{target}/enable",
    "targets list": "GET /targets",
    "targets pause": "POST /operate",
    "targets rate": "POST /operate",
    "targets resume": "POST /operate",
    "targets send": "POST /targets/{rule}/{target}/send",
    "tokens create": "a token may not create tokens",
    "tokens list": "a token may not create tokens",
    "tokens revoke": "a token may not create tokens",
    "events why": "GET /events/{event_id}",
    "events show": "GET /events/{event_id}",
    "events find": "GET /events",
    "buses list": "GET /buses",
    "buses show": "GET /buses/{bus}",
    "batches list": "GET /batches",
    "batches show": "GET /batches/{batch}",
    "redrives show": "GET /redrives",
    "redrives resume": "the server never delivers",
    "rules list": "GET /rules",
    "targets show": "GET /targets",
    "tokens show": "a token may not create tokens",
}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a webhook."""
    folder = tmp_path_factory.mktemp("described")
    with Server(Installation(folder, more=HOOK, EVENTBRIDGE_CONN_CODE="http://?signing_secret=key")) as running:
        yield running


def test_schemathesis_finds_nothing(described: Server, tmp_path: Path) -> None:
    """No 500, and no undescribed status, content type or document; the deep profile sends more calls."""
    (tmp_path / "schemathesis.toml").write_text(
        '[parameters]\n"path.bus" = "orders"\n"path.name" = "code"\n"query.topic" = "placed"\n'
    )
    token = described.installation.token("schemathesis", "publish:orders", "metrics", "read", "payloads", "operate")
    command = [Path(sys.executable).with_name("schemathesis"), "run", f"{described.url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS)]
    most = "300" if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else "20"
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", most, "--seed", "7", "--no-shrink"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    assert described.process.poll() is None


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of all commands below a group."""
    for name, command in group.commands.items():
        names = (*before, name)
        yield from commands(command, names) if hasattr(command, "commands") else (" ".join(names),)


def test_each_command_has_a_call_or_a_reason(described: Server) -> None:
    """BY_HTTP lists every command, and only existing calls."""
    with described.client(described.installation.token("describer", "metrics")) as client:
        paths = client.get("/openapi.json").json()["paths"]
    calls = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    named = {call for call in BY_HTTP.values() if call.startswith(("GET /", "POST /"))}

    assert sorted(commands(typer.main.get_command(app))) == sorted(BY_HTTP)
    assert named - calls == set()


def test_every_call_is_described(described: Server) -> None:
    """Each operation has a summary, a description, its responses and, if it needs one, the token."""
    with described.client(described.installation.token("reader", "metrics")) as client:
        paths = client.get("/openapi.json").json()["paths"]

    assert sorted(paths) == [
        "/actions",
        "/audit",
        "/batches",
        "/batches/{batch}",
        "/buses",
        "/buses/{bus}",
        "/buses/{bus}/events",
        "/chunks",
        "/dead-letter-groups",
        "/dead-letters",
        "/dead-letters/{name}",
        "/events",
        "/events/{event_id}",
        "/health",
        "/hooks/{name}",
        "/metrics",
        "/operate",
        "/pools",
        "/quality",
        "/quality/{hour}",
        "/redrives",
        "/redrives/{redrive}/cancel",
        "/replays",
        "/replays/{replay}",
        "/replays/{replay}/{word}",
        "/rule-changes",
        "/rules",
        "/rules/check",
        "/rules/{rule}",
        "/rules/{rule}/release",
        "/rules/{rule}/shadows",
        "/rules/{rule}/test",
        "/rules/{rule}/versions",
        "/schemas",
        "/schemas/{type}",
        "/stats",
        "/status",
        "/targets",
        "/targets/{rule}/{target}",
        "/targets/{rule}/{target}/check",
        "/targets/{rule}/{target}/enable",
        "/targets/{rule}/{target}/send",
    ]
    publish = paths["/buses/{bus}/events"]["post"]
    assert {"200", "207", "400", "401", "403", "404", "409", "413", "415", "422", "429", "503"} <= set(
        publish["responses"]
    )
    assert sorted(publish["requestBody"]["content"]) == [
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "application/json",
    ]
    assert publish["security"] == [{"token": []}]
    assert all(call["summary"] and call["description"] for path in paths.values() for call in path.values())
