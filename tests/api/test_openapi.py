"""openapi.json says what the API answers: Schemathesis calls it with all kinds of data, right and wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from api.server import Installation, Server

HOOK = ", webhooks: {code: {signature: github, connection: code}}"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a webhook."""
    folder = tmp_path_factory.mktemp("described")
    with Server(Installation(folder, more=HOOK, EVENTBRIDGE_CONN_CODE="http://?signing_secret=key")) as running:
        yield running


def test_schemathesis_finds_nothing(described: Server, tmp_path: Path) -> None:
    """No 500, and no status, content type or document that openapi.json does not have; the deep profile asks more."""
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


def test_every_call_is_described(described: Server) -> None:
    """Each operation has a summary, a text, its answers and, where it needs one, the token."""
    with described.client() as client:
        paths = client.get("/openapi.json").json()["paths"]

    assert sorted(paths) == [
        "/actions",
        "/audit",
        "/batches",
        "/batches/{batch}",
        "/buses",
        "/buses/{bus}",
        "/buses/{bus}/events",
        "/dead-letter-groups",
        "/dead-letters",
        "/dead-letters/{name}",
        "/events",
        "/events/{event_id}",
        "/figures",
        "/health",
        "/hooks/{name}",
        "/metrics",
        "/operate",
        "/pools",
        "/quality",
        "/redrives",
        "/redrives/{redrive}/cancel",
        "/replays",
        "/replays/{replay}",
        "/replays/{replay}/{word}",
        "/rules",
        "/rules/{rule}",
        "/rules/{rule}/release",
        "/rules/{rule}/test",
        "/rules/{rule}/versions",
        "/schemas",
        "/schemas/{type}",
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
