"""openapi.json describes the API's responses: Schemathesis calls it with valid and invalid data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from api.server import Installation, Server

from eventbridge.api.overrides import PriorityCall
from eventbridge.cli import app
from eventbridge.rules.vocabulary import PRIORITIES

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
    "audit": "GET /v1/audit",
    "backup check": "for administrators of the host, before anything starts",
    "batches repair": "it writes files of the store: for administrators of the host",
    "events publish": "POST /v1/buses/{bus}/events",
    "compile": "concerns the host",
    "redrives cancel": "POST /v1/redrives/{redrive}/cancel",
    "dead-letters export": "GET /v1/dead-letters",
    "dead-letters list": "GET /v1/dead-letters",
    "redrives start": "POST /v1/redrives",
    "redrives list": "GET /v1/redrives",
    "dead-letters show": "GET /v1/dead-letters/{name}",
    "deliver": "the server never delivers",
    "sql": "its result may have payloads of every owner",
    "stats": "GET /v1/stats",
    "heartbeat": "scheduled",
    "init": "concerns the host",
    "init-airflow": "concerns the host",
    "ledger copy": "concerns the host",
    "erase": "it writes files of the store: for administrators of the host",
    "ledger migrate": "concerns the host",
    "maintain": "scheduled",
    "quality check": "scheduled; needs Great Expectations",
    "quality list": "GET /v1/quality",
    "quality show": "GET /v1/quality/{hour}",
    "queues list": "GET /v1/queues",
    "queues show": "GET /v1/queues",
    "replays start": "POST /v1/replays",
    "replays cancel": "POST /v1/replays/{replay}/cancel",
    "replays list": "GET /v1/replays",
    "replays pause": "POST /v1/replays/{replay}/pause",
    "replays resume": "POST /v1/replays/{replay}/resume",
    "replays show": "GET /v1/replays/{replay}",
    "plugins list": "concerns the packages of the host",
    "plugins show": "concerns the packages of the host",
    "rules backtest": "needs Spark",
    "rules check": "POST /v1/rules/check",
    "rules diff": "needs Spark",
    "rules disable": "POST /v1/rules/{rule}/disable",
    "rules enable": "POST /v1/rules/{rule}/enable",
    "rules history": "GET /v1/rule-changes",
    "rules pause": "POST /v1/rules/{rule}/pause",
    "rules priority": "PUT /v1/rules/{rule}/priority",
    "rules publish": "rule files are the single source of truth: for their authors",
    "rules release": "POST /v1/rules/{rule}/release",
    "rules resume": "POST /v1/rules/{rule}/resume",
    "rules schema": "for editors on a laptop",
    "rules shadow": "GET /v1/rules/{rule}/shadows",
    "rules show": "GET /v1/rules/{rule}",
    "rules test": "POST /v1/rules/{rule}/test",
    "schemas list": "GET /v1/schemas",
    "schemas show": "GET /v1/schemas/{type}",
    "serve": "concerns the host",
    "mcp": "concerns the host",
    "status": "GET /v1/status",
    "tables register": "concerns a catalog of the host",
    "targets check": "POST /v1/targets/{rule}/{target}/check",
    "targets enable": "POST /v1/targets/{rule}/{target}/enable",
    "targets list": "GET /v1/targets",
    "targets pause": "POST /v1/targets/{rule}/{target}/pause",
    "targets rate": "PUT /v1/targets/{rule}/{target}/rate",
    "targets resume": "POST /v1/targets/{rule}/{target}/resume",
    "targets send": "POST /v1/targets/{rule}/{target}/send",
    "tokens create": "a token may not create tokens",
    "tokens list": "a token may not create tokens",
    "tokens revoke": "a token may not create tokens",
    "events tail": "it follows the bus itself, and records nothing",
    "events why": "GET /v1/events/{event_id}",
    "events show": "GET /v1/events/{event_id}",
    "events find": "GET /v1/events",
    "buses list": "GET /v1/buses",
    "buses show": "GET /v1/buses/{bus}",
    "batches list": "GET /v1/batches",
    "batches show": "GET /v1/batches/{batch}",
    "redrives show": "GET /v1/redrives/{redrive}",
    "redrives resume": "the server never delivers",
    "rules list": "GET /v1/rules",
    "targets show": "GET /v1/targets/{rule}/{target}",
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
    named = {call for call in BY_HTTP.values() if call.startswith(("GET /", "POST /", "PUT /"))}

    assert sorted(commands(typer.main.get_command(app))) == sorted(BY_HTTP)
    assert named - calls == set()


def test_every_call_is_described(described: Server) -> None:
    """Each operation has a summary, a description, its responses and, if it needs one, the token."""
    with described.client(described.installation.token("reader", "metrics")) as client:
        paths = client.get("/openapi.json").json()["paths"]

    assert sorted(paths) == [
        "/health",
        "/metrics",
        "/v1/actions",
        "/v1/audit",
        "/v1/batches",
        "/v1/batches/{batch}",
        "/v1/buses",
        "/v1/buses/{bus}",
        "/v1/buses/{bus}/events",
        "/v1/chunks",
        "/v1/dead-letter-groups",
        "/v1/dead-letters",
        "/v1/dead-letters/{name}",
        "/v1/events",
        "/v1/events/{event_id}",
        "/v1/hooks/{name}",
        "/v1/pools",
        "/v1/quality",
        "/v1/quality/{hour}",
        "/v1/queues",
        "/v1/queues/{queue}/acknowledge",
        "/v1/queues/{queue}/extend",
        "/v1/queues/{queue}/receive",
        "/v1/queues/{queue}/release",
        "/v1/redrives",
        "/v1/redrives/{redrive}",
        "/v1/redrives/{redrive}/cancel",
        "/v1/replays",
        "/v1/replays/{replay}",
        "/v1/replays/{replay}/cancel",
        "/v1/replays/{replay}/pause",
        "/v1/replays/{replay}/resume",
        "/v1/rule-changes",
        "/v1/rules",
        "/v1/rules/check",
        "/v1/rules/{rule}",
        "/v1/rules/{rule}/disable",
        "/v1/rules/{rule}/enable",
        "/v1/rules/{rule}/pause",
        "/v1/rules/{rule}/priority",
        "/v1/rules/{rule}/release",
        "/v1/rules/{rule}/resume",
        "/v1/rules/{rule}/shadows",
        "/v1/rules/{rule}/test",
        "/v1/rules/{rule}/versions",
        "/v1/schemas",
        "/v1/schemas/{type}",
        "/v1/stats",
        "/v1/status",
        "/v1/targets",
        "/v1/targets/{rule}/{target}",
        "/v1/targets/{rule}/{target}/check",
        "/v1/targets/{rule}/{target}/enable",
        "/v1/targets/{rule}/{target}/pause",
        "/v1/targets/{rule}/{target}/rate",
        "/v1/targets/{rule}/{target}/resume",
        "/v1/targets/{rule}/{target}/send",
    ]
    publish = paths["/v1/buses/{bus}/events"]["post"]
    assert {"200", "207", "400", "401", "403", "404", "409", "413", "415", "422", "429", "503"} <= set(
        publish["responses"]
    )
    assert sorted(publish["requestBody"]["content"]) == [
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "application/json",
    ]
    assert publish["security"] == [{"token": []}]


def test_a_call_names_only_codes_that_calls_of_its_kind_return(described: Server) -> None:
    """A call that reads has no body and no idempotency key; only a webhook rejects a signature."""
    with described.client(described.installation.token("coder", "metrics")) as client:
        paths = client.get("/openapi.json").json()["paths"]
    named = {
        (method, path): " ".join(each["description"] for each in call["responses"].values())
        for path, calls in paths.items()
        for method, call in calls.items()
    }

    of_bodies = ("`invalid_body`", "`idempotency_key_reused`", "`call_in_progress`", "`upgrade_refused`")
    assert [call for call, text in named.items() if call[0] == "get" and any(code in text for code in of_bodies)] == []
    assert [path for (_, path), text in named.items() if "`webhook_rejected`" in text] == ["/v1/hooks/{name}"]
    assert [call for call, text in named.items() if "`no_such_call`" in text] == []


def test_the_priorities_are_those_of_rule_files() -> None:
    """The description of the call lists each one."""
    assert PriorityCall.model_fields["priority"].description == "high, medium or low."
    assert PRIORITIES == ("high", "medium", "low")


def test_lists_and_actions_are_alike(described: Server) -> None:
    """A list has limit, cursor and next; what records work has 202 with Location; all else that succeeds is 200."""
    with described.client(described.installation.token("comparer", "metrics")) as client:
        document = client.get("/openapi.json").json()
    calls = {call["operationId"]: (method, call) for of in document["paths"].values() for method, call in of.items()}
    times = {"since", "until", "before", "after", "start", "end"}

    for name, (method, call) in calls.items():
        parameters = {each["name"] for each in call.get("parameters", ())}
        model = _model(document, call["responses"]["200"])
        assert name.startswith(("list_", "get_")) == (method == "get"), name
        assert name.startswith("list_") == ("cursor" in parameters) == ("next" in model.get("properties", {})), name
        assert ({"limit", "cursor"} <= parameters) == name.startswith("list_"), name
        assert not parameters & times, name
        assert ("from" in parameters) == ("to" in parameters), name
        succeeds = {status for status in call["responses"] if status.startswith("2")}
        if name.startswith("start_"):
            assert (succeeds, "Location" in call["responses"]["202"]["headers"]) == ({"200", "202"}, True), name
        else:
            assert succeeds == ({"200", "207"} if name == "publish_events" else {"200"}), name
    for name, model in document["components"]["schemas"].items():
        members = set(model.get("properties", {}))
        assert ("from" in members) == ("to" in members), name


def _model(document: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """Return the model of a response; a text has none."""
    schemas = [content.get("schema", {}) for content in response["content"].values()]
    found: dict[str, Any] = document["components"]["schemas"].get(schemas[0].get("$ref", "").rpartition("/")[2], {})
    return found


def lacking(document: dict[str, Any]) -> list[str]:
    """Return what the description of each call lacks."""
    found: list[str] = []
    calls = [(f"{method} {path}", call) for path, of in document["paths"].items() for method, call in of.items()]
    ids = [call.get("operationId", "") for _, call in calls]
    for name, call in calls:
        found += [
            f"{name}: no {part}" for part in ("summary", "description", "tags", "operationId") if not call.get(part)
        ]
        if not re.fullmatch("[a-z]+(_[a-z]+)+", call["operationId"]) or ids.count(call["operationId"]) > 1:
            found.append(f"{name}: operationId {call['operationId']}")
        for content in call.get("requestBody", {}).get("content", {}).values():
            schema = content["schema"]
            named = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], {})
            if "example" not in content and not named.get("examples"):
                found.append(f"{name}: no example of its body")
        for status, response in call["responses"].items():
            content = response.get("content", {})
            if status.startswith("2") and "application/json" in content and not content["application/json"]["schema"]:
                found.append(f"{name}: no schema of {status}")
            if status.startswith("4") and "application/problem+json" not in content:
                found.append(f"{name}: no problem of {status}")
            if "application/problem+json" in content and "Codes: `" not in response["description"]:
                found.append(f"{name}: no codes of {status}")
    return found


def test_no_call_lacks_a_part_of_its_description(described: Server) -> None:
    """Summary, description, tag, readable id, example of its body, schema of its response, problems with codes."""
    with described.client(described.installation.token("completer", "metrics")) as client:
        assert lacking(client.get("/openapi.json").json()) == []
